"""What `/readyz` says of a platform that starts, works, or can write nothing."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.types import Message

from clusters.base.clock import SystemClock
from clusters.embedded.cluster import EmbeddedCluster
from serving.control_api.app import ControlApi
from serving.control_api.guard import Guard
from tests.support.api import NoLogs


@pytest.mark.parametrize(
    ("is_ready", "trouble", "status", "words"),
    [
        (True, "", 200, b"ok"),
        (False, "", 503, b"starting"),
        (True, "/home/me/cluster.db: disk full", 503, b"nothing can be written: the platform's log says why"),
    ],
)
async def test_it_is_ready_while_it_can_write(
    cluster: EmbeddedCluster, is_ready: bool, trouble: str, status: int, words: bytes
) -> None:
    async def told() -> str:
        return trouble

    api = ControlApi(
        cluster, kinds=(), writable=(), logs=NoLogs(), clock=SystemClock(), version="0",
        ready=lambda: is_ready, trouble=told,
    )  # fmt: skip
    app = api.app(Guard("t0ken", frozenset({"localhost"})))
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/readyz", "headers": [(b"host", b"localhost")]}
    await app({**scope, "query_string": b"", "root_path": ""}, receive, send)
    assert (sent[0]["status"], sent[1]["body"]) == (status, words)
