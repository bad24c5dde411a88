"""Writes in one turn of the loop are sent together, in order and without loss."""

from __future__ import annotations

import asyncio
from typing import Any

from clusters.net.server.outbox import MAX_DELAYED_SIZE, GatheringTransport, Outbox
from tests.serving.modelserver.client import request
from tests.serving.modelserver.conftest import NAME, Running


class Recorder(asyncio.Transport):
    """A transport that records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.told.append(bytes(data))

    def close(self) -> None:
        self.told.append("close")

    def abort(self) -> None:
        self.told.append("abort")

    def write_eof(self) -> None:
        self.told.append("eof")

    def get_write_buffer_size(self) -> int:
        return 0


def gathering(requests: int) -> tuple[GatheringTransport, Recorder]:
    recorder = Recorder()
    outbox = Outbox(asyncio.get_running_loop(), range(requests))
    return GatheringTransport(recorder, outbox), recorder


async def test_an_answer_that_is_alone_is_written_at_once() -> None:
    transport, socket = gathering(requests=1)

    transport.write(b"answer")

    assert socket.told == [b"answer"]


async def test_answers_of_one_turn_are_written_at_its_end_and_each_once() -> None:
    transport, socket = gathering(requests=2)

    transport.write(b"one ")
    transport.write(b"two")
    told_before = list(socket.told)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert told_before == []
    assert socket.told == [b"one two"]
    assert transport.get_write_buffer_size() == 0


async def test_a_large_answer_waits_for_none_but_overtakes_none() -> None:
    transport, socket = gathering(requests=2)
    large = bytes(MAX_DELAYED_SIZE + 1)

    transport.write(large)
    assert socket.told == [large]

    transport.write(b"small")
    transport.write(large)
    assert len(socket.told) == 1
    assert transport.get_write_buffer_size() == len(b"small") + len(large)
    transport.flush()

    assert socket.told[1] == b"small" + large


async def test_the_end_of_a_connection_comes_behind_what_was_written() -> None:
    for end, told in (("close", "close"), ("write_eof", "eof")):
        transport, socket = gathering(requests=2)
        transport.write(b"answer")
        getattr(transport, end)()
        assert socket.told == [b"answer", told]


async def test_a_connection_that_is_broken_off_writes_nothing_more() -> None:
    transport, socket = gathering(requests=2)

    transport.write(b"answer")
    transport.abort()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert socket.told == ["abort"]


async def test_one_turn_of_the_loop_serves_all_connections() -> None:
    loop = asyncio.get_running_loop()
    requests = [object(), object()]
    outbox = Outbox(loop, requests)
    sockets = [Recorder() for _ in range(5)]
    transports = [GatheringTransport(socket, outbox) for socket in sockets]

    for number, transport in enumerate(transports):
        transport.write(b"%d" % number)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert [socket.told for socket in sockets] == [[b"%d" % number] for number in range(5)]


async def test_what_cannot_be_written_any_more_keeps_nobody_else_from_an_answer() -> None:
    outbox = Outbox(asyncio.get_running_loop(), range(2))
    socket = Recorder()
    others = GatheringTransport(socket, outbox)
    outbox.at_end_of_turn(_gone)
    others.write(b"answer")

    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert socket.told == [b"answer"]


def _gone() -> None:
    raise RuntimeError("the handle is closed")


async def test_nothing_is_written_behind_an_end() -> None:
    for end in ("close", "write_eof", "abort", "discard"):
        transport, socket = gathering(requests=2)
        getattr(transport, end)()
        told = list(socket.told)
        transport.write(b"too late")
        transport.flush()
        assert socket.told == told


BREAKS_OFF = (
    f"POST /v2/models/{NAME}/infer HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
    "Transfer-Encoding: chunked\r\n\r\nZZ\r\n"
).encode()


async def test_a_broken_request_takes_no_answer_from_those_that_came_with_it(double: Running) -> None:
    callers = [await double.connect() for _ in range(5)]
    for number, caller in enumerate(callers):  # all arrive in the same turn of the loop
        caller.write(BREAKS_OFF if number == 2 else request("GET", f"/v2/models/{NAME}"))

    answers = [await caller.answer() for caller in callers]
    for caller in callers:
        caller.close()

    assert [answer.status for answer in answers] == [200, 200, 400, 200, 200]


async def test_a_caller_that_breaks_off_takes_no_answer_from_those_that_came_with_it(double: Running) -> None:
    callers = [await double.connect() for _ in range(5)]
    for _ in range(20):
        leaver = await double.connect()
        for caller in (leaver, *callers):
            caller.write(request("GET", f"/v2/models/{NAME}"))
        leaver.reset()
        assert [(await caller.answer()).status for caller in callers] == [200] * 5
    for caller in callers:
        caller.close()
