"""Requests before there is a model: the cases that real sockets meet too rarely."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope, Send

from serving.server.app import make_app
from serving.server.hold import Hold
from serving.server.limits import BodyBudget
from serving.server.stats import Stats
from tests.support.clock import SteppedClock


async def receive() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def send(_: Message) -> None:
    """Nowhere."""


async def test_what_arrived_before_it_opened_and_is_begun_after_it_is_passed_on() -> None:
    answered: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answered.append(scope["path"])

    hold = Hold(make_app([]), Stats(SteppedClock().monotonic), BodyBudget(1), limit=1, timeout=1.0)
    late = asyncio.create_task(_asked(hold))
    hold.open(app)
    async with asyncio.timeout(5):
        await late
    assert (answered, hold.waiting) == (["/v2/models/m"], 0)


async def _asked(hold: Hold) -> None:
    await hold({"type": "http", "method": "GET", "path": "/v2/models/m"}, receive, send)
