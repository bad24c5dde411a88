"""Requests before a model is loaded: cases that are rare on real sockets."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope, Send

from clusters.net.server.connection import HttpConnection
from clusters.net.server.protocol import connection_of
from serving.modelserver.base.errors import NotReady
from serving.modelserver.base.limits import BodyBudget, ServerLimits
from serving.modelserver.base.stats import Stats
from serving.modelserver.connections.listener import AsgiListener
from serving.modelserver.connections.sockets import bind
from serving.modelserver.endpoints.app import make_app
from serving.modelserver.endpoints.pending_requests import PendingRequests
from tests.serving.modelserver.client import HOST, Caller, request
from tests.support.clock import SteppedClock
from tests.support.wait import eventually


async def receive() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def send(_: Message) -> None:
    """Drop the message."""


async def test_what_arrived_before_it_opened_and_is_begun_after_it_is_passed_on() -> None:
    answered: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answered.append(scope["path"])

    hold = PendingRequests(make_app([]), Stats(SteppedClock().monotonic), BodyBudget(1), limit=1, timeout=1.0)
    late = asyncio.create_task(_asked(hold))
    hold.resolve(app)
    async with asyncio.timeout(5):
        await late
    assert (answered, hold.waiting) == (["/v2/models/m"], 0)


async def test_a_load_that_failed_is_told_by_an_error_of_its_own_to_each() -> None:
    hold = PendingRequests(make_app([]), Stats(SteppedClock().monotonic), BodyBudget(1), limit=3, timeout=1.0)
    waiting = [asyncio.create_task(hold.wait(work=True)) for _ in range(2)]
    await asyncio.sleep(0)
    hold.reject(NotReady("broken"))
    errors = [*await asyncio.gather(*waiting, hold.wait(work=True), return_exceptions=True)]
    assert [str(error) for error in errors] == ["broken"] * 3
    assert len({id(error) for error in errors}) == 3


async def test_an_end_that_comes_with_the_rest_of_a_body_is_told_to_its_request_and_not_to_the_next() -> None:
    hold = PendingRequests(make_app([]), Stats(SteppedClock().monotonic), BodyBudget(100), limit=2, timeout=10.0)
    connections: list[HttpConnection] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        connections.append(connection_of(scope, HttpConnection))
        await hold(scope, receive, send)

    listener = AsgiListener(app, bind(HOST, 0, "PORT"), ServerLimits())
    await listener.start()
    caller = await Caller.connect(listener.port)
    first, second = request("POST", "/1", b"body"), request("POST", "/2", b"body")
    await caller.send(first[:-1])
    await eventually(lambda: hold.waiting == 1)

    connections[0].data_received(first[-1:] + second[:-1])  # in one turn of the loop with the end of the waiting
    hold.reject(NotReady("broken"))
    answers = [await caller.answer(), await caller.answer()]
    await caller.send(second[-1:] + first)
    answers.append(await caller.answer())

    assert [answer.status for answer in answers] == [503] * 3
    assert not any("connection" in answer.headers for answer in answers)
    caller.close()
    await listener.close()


async def _asked(hold: PendingRequests) -> None:
    await hold({"type": "http", "method": "GET", "path": "/v2/models/m"}, receive, send)
