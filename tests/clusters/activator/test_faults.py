"""Endpoints that refuse connections, crash, disconnect, or send invalid HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clusters.net.endpoints import Endpoint
from tests.clusters.activator.backend import Backend, Call
from tests.clusters.activator.caller import head
from tests.clusters.activator.conftest import Running
from tests.support.wait import eventually


async def refusing() -> Backend:
    """Return an address without a server."""
    async with Backend(name="default/refusing") as backend:
        pass
    return backend


@pytest.mark.fault("I4")
async def test_an_endpoint_that_refuses_is_passed_by_and_not_hammered(activator: Running) -> None:
    dead = await refusing()
    async with Backend() as alive:
        await activator.serve(dead.endpoint, alive.endpoint)
        answers = [await (await activator.caller()).post(b"%d" % number) for number in range(20)]
        assert {answer.status for answer in answers} == {200}
        assert len(alive.calls) == 20


@pytest.mark.fault("I4")
async def test_a_request_waits_until_the_endpoint_listens(activator: Running) -> None:
    backend = await refusing()
    await activator.serve(backend.endpoint)
    callers = await activator.callers(10)
    tasks = [asyncio.create_task(caller.post(b"%d" % number)) for number, caller in enumerate(callers)]
    await activator.queued(10)
    async with backend:
        answers = await asyncio.gather(*tasks)
    assert [answer.body for answer in answers] == [b"%d" % number for number in range(10)]
    assert len(backend.calls) == 10


async def test_a_refused_request_still_has_its_deadline(activator: Running) -> None:
    dead = await refusing()
    await activator.serve(dead.endpoint, timeout=0.3)
    async with await activator.caller() as caller:
        assert (await caller.post(b"x")).status == 503
    await activator.idle()


async def test_a_path_writes_no_lines_of_its_own_into_the_log(activator: Running, tmp_path: Path) -> None:
    async def die(call: Call) -> None:
        call.writer.transport.abort()

    async with Backend(die) as dying, await activator.caller() as caller:
        await activator.serve(dying.endpoint)
        assert (await caller.post(target="/%0aforged%20line" + "x" * 1000)).status == 502
    written = (tmp_path / "activator" / "activator.log").read_text()
    assert "/%0aforged%20linex" in written
    assert "\nforged" not in written
    assert max(map(len, written.splitlines())) < 500


@pytest.mark.fault("I4")
async def test_a_server_that_dies_before_it_answers_is_502_and_is_not_asked_again(activator: Running) -> None:
    async def die(call: Call) -> None:
        await call.body()
        call.writer.transport.abort()

    async with Backend(die) as dying, Backend() as other:
        await activator.serve(dying.endpoint)
        async with await activator.caller() as caller:
            answer = await caller.post(b"x")
            assert answer.status == 502
            assert "closed the connection" in answer.error
        await activator.serve(other.endpoint)
        assert len(dying.calls) == 1
        assert other.calls == []


@pytest.mark.fault("I9")
async def test_a_server_that_dies_within_its_answer_cuts_the_caller_off(activator: Running) -> None:
    async def die(call: Call) -> None:
        await call.body()
        call.writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await call.writer.drain()
        call.writer.close()

    async with Backend(die) as backend, await activator.caller() as caller:
        await activator.serve(backend.endpoint)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await caller.post(b"x")
    await activator.idle()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 999 What\r\ncontent-length: 0\r\n\r\n",
    ],
)
async def test_nonsense_is_502(activator: Running, nonsense: bytes) -> None:
    async def talk(call: Call) -> None:
        await call.body()
        call.writer.write(nonsense)

    async with Backend(talk) as backend, await activator.caller() as caller:
        await activator.serve(backend.endpoint)
        assert (await caller.post(b"x")).status == 502
    await activator.idle()


@pytest.mark.fault("I4")
async def test_connections_are_kept_and_one_closed_meanwhile_is_not_used(activator: Running) -> None:
    async with Backend() as backend, await activator.caller() as caller:
        await activator.serve(backend.endpoint)
        for number in range(5):
            assert (await caller.post(b"%d" % number)).body == b"%d" % number
        assert backend.connections == 1
        idle = backend.calls[-1]
        idle.writer.write_eof()
        await eventually(idle.reader.at_eof)  # the activator has seen it, and closed its side
        idle.writer.close()
        await idle.writer.wait_closed()
        assert (await caller.post(b"last")).body == b"last"
        assert backend.connections == 2


async def test_requests_in_a_row_on_one_connection_are_answered_in_order(activator: Running) -> None:
    async with Backend() as backend, await activator.caller() as caller:
        await activator.serve(backend.endpoint)
        for number in range(5):
            caller.writer.write(head(content_length=1) + b"%d" % number)
        assert [(await caller.answer()).body for _ in range(5)] == [b"%d" % number for number in range(5)]


async def test_an_endpoint_that_never_answers_is_left_to_the_callers_patience(activator: Running) -> None:
    async def hang(call: Call) -> None:
        await call.reader.read()

    async with Backend(hang) as backend:
        await activator.serve(backend.endpoint, Endpoint("default/none", "127.0.0.1", 1, 1), slots=1)
        caller = await activator.caller()
        caller.send(b"x")
        await eventually(lambda: activator.load.active == 1)
        caller.leave()
        await activator.idle()
