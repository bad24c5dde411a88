"""The webhook beside the control API: which of the two a request reaches."""

from __future__ import annotations

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from serving.control_api.server import WithWebhook


def note(name: str, reached: list[str]) -> ASGIApp:
    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        reached.append(name)

    return app


@pytest.mark.parametrize(
    ("scope", "name"),
    [
        ({"type": "http", "path": "/events"}, "webhook"),
        ({"type": "http", "path": "/events/train"}, "webhook"),
        ({"type": "http", "path": "/events/default/train"}, "webhook"),
        ({"type": "http", "path": "/eventsource"}, "api"),
        ({"type": "http", "path": "/api/v1/events"}, "api"),
        ({"type": "http", "path": "/"}, "api"),
        ({"type": "lifespan"}, "api"),
    ],
)
async def test_only_requests_of_its_path_reach_the_webhook(scope: Scope, name: str) -> None:
    reached: list[str] = []

    async def nothing(*_: object) -> dict[str, object]:
        return {}

    await WithWebhook(note("api", reached), note("webhook", reached))(scope, nothing, nothing)  # type: ignore[arg-type]
    assert reached == [name]
