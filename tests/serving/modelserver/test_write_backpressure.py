"""Pending responses: slow readers get them completely, even on shutdown; clients that do not read are disconnected."""

from __future__ import annotations

import asyncio
import json
import select
import socket
from collections.abc import Iterator

import pytest
from starlette.types import Receive, Scope, Send

from clusters.net.server.connection import HttpConnection
from clusters.net.server.protocol import connection_of
from serving.modelserver.base.limits import MEBIBYTE, ServerLimits
from serving.modelserver.connections.listener import AsgiListener
from serving.modelserver.connections.sockets import bind
from tests.serving.modelserver.client import HOST, Caller, ask, request
from tests.serving.modelserver.streaming import NAME, counting_server
from tests.support.wait import eventually

INFER = f"/v2/models/{NAME}/infer"
CALL = request(
    "POST",
    INFER,
    json.dumps(
        {
            "inputs": [{"name": "n", "datatype": "INT64", "shape": [1], "data": [1]}],
            "parameters": {"binary_data_output": True},
        }
    ).encode(),
)
"""A request whose response has `WIDTH` numbers of 8 bytes."""
SMALL_CALL = request("POST", INFER, b"{}")
LIVE = request("GET", "/v2/health/live")
WIDTH = 4 * MEBIBYTE
SIZE = 8 * WIDTH
IN_KERNEL = 16 * MEBIBYTE  # more than the buffers of both ends of a connection
HURRY = ServerLimits(response_check=0.1, end=0.2)
PATIENT = ServerLimits(response_check=60.0)
"""Seconds."""


class Deaf:
    """A client that sends and never reads."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect((HOST, port))
        self._poll = select.poll()
        self._poll.register(self._socket, 0)

    def send(self, data: bytes) -> None:
        """Send as much as the kernel accepts."""
        self._socket.send(data)

    @property
    def is_cut_off(self) -> bool:
        """Return whether the server has reset the connection."""
        return any(event & select.POLLERR for _, event in self._poll.poll(0))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


@pytest.fixture
def deaf() -> Iterator[list[Deaf]]:
    callers: list[Deaf] = []
    yield callers
    for caller in callers:
        caller.close()


def calls(deaf: list[Deaf], port: int, data: bytes) -> Deaf:
    """Return a new client that has sent `data`."""
    deaf.append(Deaf(port))
    deaf[-1].send(data)
    return deaf[-1]


async def test_a_server_that_ends_waits_until_its_last_answer_was_taken() -> None:
    limits = ServerLimits(end=30.0)
    server = counting_server(width=WIDTH, limits=limits)
    running = await server.__aenter__()
    reader, writer = await asyncio.open_connection(HOST, running.port)
    writer.write(CALL)
    await eventually(lambda: running.engine.ended == 1 and running.stats.active == 0)
    taken, taken_at_end = 0, []
    ending = asyncio.create_task(server.__aexit__(None, None, None))
    ending.add_done_callback(lambda _: taken_at_end.append(taken))
    while piece := await reader.read(MEBIBYTE):
        taken += len(piece)
    await ending
    assert taken > SIZE
    assert taken_at_end[0] > SIZE - IN_KERNEL
    writer.close()


async def test_who_does_not_read_an_answer_is_cut_off(deaf: list[Deaf]) -> None:
    async with counting_server(width=WIDTH, limits=HURRY) as running:
        caller = calls(deaf, running.port, CALL)
        await eventually(lambda: running.stats.requests == 1 and running.stats.active == 0)
        await eventually(lambda: caller.is_cut_off)


async def test_who_reads_slowly_gets_all_of_it() -> None:
    limits = ServerLimits(response_check=0.05, body_rate=MEBIBYTE)
    async with counting_server(width=WIDTH // 2, limits=limits) as running:
        reader, writer = await asyncio.open_connection(HOST, running.port)
        writer.write(CALL)
        loop = asyncio.get_running_loop()
        begun, taken = loop.time(), 0
        while taken < SIZE // 2:
            taken += len(await reader.read(MEBIBYTE))
            await asyncio.sleep(0.01)  # slow, and steady
        assert loop.time() - begun > 2 * limits.response_check
        writer.close()


async def test_a_server_ends_though_nobody_reads_and_much_was_asked(deaf: list[Deaf]) -> None:
    async with counting_server(width=WIDTH, limits=ServerLimits(end=0.1)) as running:
        calls(deaf, running.port, CALL + LIVE * 100)
        await eventually(lambda: running.stats.requests == 1 and running.stats.active == 0)


async def test_answers_that_nobody_takes_are_answered_by_429_until_they_are_gone(deaf: list[Deaf]) -> None:
    limits = ServerLimits(unread_responses=MEBIBYTE, response_check=60.0, linger=0.01, end=0.1)
    async with counting_server(width=WIDTH, limits=limits) as running:
        caller = calls(deaf, running.port, CALL)

        async def is_refused() -> bool:
            answer = await ask(running.port, SMALL_CALL)
            assert answer.status in (400, 429)
            return answer.status == 429

        await eventually(is_refused)
        refused = await ask(running.port, SMALL_CALL)
        assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
        assert (await ask(running.port, LIVE)).status == 200
        caller.close()

        async def is_heard() -> bool:
            return not await is_refused()

        await eventually(is_heard)


async def test_who_asks_whether_a_caller_left_learns_it_also_when_it_has_left_before() -> None:
    connections: list[HttpConnection] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        connections.append(connection_of(scope, HttpConnection))
        while (await receive())["type"] != "http.disconnect":
            pass

    listener = AsgiListener(app, bind(HOST, 0, "PORT"), ServerLimits())
    await listener.start()
    caller = await Caller.connect(listener.port)
    await caller.send(LIVE)
    await eventually(lambda: connections)
    caller.reset()
    await listener.close()
    told = asyncio.Event()
    connections[0].on_disconnect(told.set)
    assert told.is_set()
