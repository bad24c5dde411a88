"""The key that replicas ask for."""

from __future__ import annotations

from typing import Any

import pytest

from serving.engines.ray.key import HEADER, RequireKey

KEY = (HEADER.encode(), b"right")


class App:
    """Records what it gets."""

    def __init__(self) -> None:
        self.scopes: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)


async def statuses(app: App, kind: str, path: str, *headers: tuple[bytes, bytes]) -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message.get("status", message.get("code")))

    await RequireKey(app, "right")({"type": kind, "path": path, "headers": list(headers)}, None, send)
    return sent


async def test_a_request_with_the_key_is_passed_on_without_it() -> None:
    app = App()
    assert await statuses(app, "http", "/a", (b"a", b"1"), KEY, (b"a", b"2")) == []
    assert app.scopes == [{"type": "http", "path": "/a", "headers": [(b"a", b"1"), (b"a", b"2")]}]


@pytest.mark.parametrize("headers", [(), ((HEADER.encode(), b"wrong"),), ((HEADER.encode(), b""),), (KEY, KEY)])
async def test_any_other_request_is_refused(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    app = App()
    assert await statuses(app, "http", "/a", *headers) == [403, None]
    assert await statuses(app, "websocket", "/a", *headers) == [1008]
    assert app.scopes == []


@pytest.mark.parametrize(("kind", "path"), [("http", "/-/healthz"), ("http", "/-/routes"), ("lifespan", "")])
async def test_ray_s_own_checks_need_no_key(kind: str, path: str) -> None:
    app = App()
    assert await statuses(app, kind, path) == []
    assert len(app.scopes) == 1
