"""Bodies and framing on both sides: streamed, bounded, and never truncated silently."""

from __future__ import annotations

import asyncio
import hashlib
import socket

import pytest

from tests.clusters.activator.backend import Backend, Call
from tests.clusters.activator.caller import Caller, head
from tests.clusters.activator.conftest import Running
from tests.support.wait import eventually

MIB = 1024 * 1024
PIECE = 64 * 1024
BUFFERED = 64 * 1024  # bytes that one held request may cost: the first piece of its body, and its objects


async def send_in_pieces(caller: Caller, body: bytes) -> None:
    """Send a body as a real client does: only as fast as the other side reads."""
    caller.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIECE)
    caller.writer.write(head(content_length=len(body)))
    for at in range(0, len(body), PIECE):
        caller.writer.write(body[at : at + PIECE])
        await caller.writer.drain()


@pytest.mark.fault("I6")
async def test_large_bodies_wait_with_their_callers_and_not_in_the_activator(activator: Running) -> None:
    """1 000 x 10 MB at zero replicas: memory is bounded, cancelled requests are not sent, and the others arrive
    complete.
    """
    body = bytes(range(256)) * (10 * 1000 * 1000 // 256)
    expected = hashlib.sha256(body).hexdigest().encode()
    complete = 0

    async def digest(call: Call) -> None:
        nonlocal complete
        received = await call.body()
        complete += bool(received)
        await call.answer(hashlib.sha256(received).hexdigest().encode())

    async with Backend(digest) as backend:
        await activator.serve()
        before = activator.memory()
        callers = await activator.callers(1000)
        senders = [asyncio.create_task(send_in_pieces(caller, body)) for caller in callers]
        await activator.queued(1000)
        assert activator.memory() - before < 1000 * BUFFERED
        stay = callers[::50]
        for caller, sender in zip(callers, senders, strict=True):
            if caller not in stay:
                sender.cancel()
                caller.leave()
        await activator.serve(backend.endpoint, slots=4)
        answers = await asyncio.gather(*(caller.answer() for caller in stay))
        assert {answer.body for answer in answers} == {expected}
        assert complete == len(stay)
        assert activator.memory() - before < 1000 * BUFFERED
        await activator.idle()
        await asyncio.gather(*senders, return_exceptions=True)


async def test_a_caller_that_leaves_before_its_body_was_read_is_noticed(activator: Running) -> None:
    """A disconnect is noticed as far as the kernel knows it: unsent data hides the end of the connection."""
    await activator.serve()
    async with await activator.caller() as caller:
        caller.writer.write(head(content_length=1000) + b"half")
        await activator.queued(1)
    await activator.idle()


async def test_a_large_answer_waits_for_a_slow_caller(activator: Running) -> None:
    size = 64 * MIB

    async def large(call: Call) -> None:
        await call.body()
        call.writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size // MIB):
            call.writer.write(bytes(MIB))
            await call.writer.drain()

    async with Backend(large) as backend, await activator.caller() as caller:
        await activator.serve(backend.endpoint)
        before = activator.memory()
        caller.send(b"x")
        await caller.reader.readuntil(b"\r\n\r\n")
        await eventually(lambda: backend.busy == 1)
        assert activator.memory() - before < 8 * MIB
        assert len(await caller.reader.readexactly(size)) == size
        assert activator.memory() - before < 8 * MIB


async def test_chunked_requests_and_answers_pass_in_pieces(activator: Running) -> None:
    """Both directions stream at once: the response begins before the last piece of the request is sent."""

    async def parrot(call: Call) -> None:
        call.writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while size := int(await call.reader.readline(), 16):
            piece = await call.reader.readexactly(size)
            await call.reader.readline()
            call.writer.write(b"%x\r\n%b\r\n" % (size, piece))
        await call.reader.readline()
        call.writer.write(b"0\r\n\r\n")

    async with Backend(parrot) as backend, await activator.caller() as caller:
        await activator.serve(backend.endpoint)
        caller.writer.write(head(transfer_encoding="chunked") + b"3\r\none\r\n")
        await caller.reader.readuntil(b"\r\n\r\n")
        assert await caller.reader.readexactly(8) == b"3\r\none\r\n"
        caller.writer.write(b"3\r\ntwo\r\n")
        assert await caller.reader.readexactly(8) == b"3\r\ntwo\r\n"
        caller.writer.write(b"0\r\n\r\n")
        assert await caller.reader.readexactly(5) == b"0\r\n\r\n"


async def test_what_belongs_to_one_hop_ends_at_it(activator: Running) -> None:
    async def show(call: Call) -> None:
        await call.body()
        await call.answer(call.head, headers={"Connection": "X-Secret, keep-alive", "X-Secret": "1", "X-Kept": "2"})

    async with Backend(show) as backend, await activator.caller() as caller:
        await activator.serve(backend.endpoint)
        answer = await caller.post(
            b"x",
            connection="x-hop, content-length",
            x_hop="1",
            te="trailers",
            x_kept="yes",
            proxy_authorization="secret",
        )
        seen = answer.body.decode().lower()
        assert seen.startswith("post /v2/models/iris/infer http/1.1")
        assert "host: iris.default.localhost" in seen
        assert "x-kept: yes" in seen
        assert "content-length: 1" in seen
        for gone in ("x-hop", "te:", "connection", "proxy-authorization", "knative-serving"):
            assert gone not in seen
        assert answer.headers["x-kept"] == "2"
        assert "x-secret" not in answer.headers


async def test_trailers_do_not_become_headers(activator: Running) -> None:
    async def show(call: Call) -> None:
        await call.body()
        await call.answer(call.head)

    async with Backend(show) as backend, await activator.caller() as caller:
        await activator.serve(backend.endpoint)
        trailers = b"content-type: smuggled\r\nknative-serving-revision: smuggled\r\n"
        caller.writer.write(
            head(transfer_encoding="chunked", trailer="content-type") + b"1\r\na\r\n0\r\n" + trailers + b"\r\n"
        )
        answer = await caller.answer()
        assert answer.status == 200
        assert b"smuggled" not in answer.body


async def test_target_and_query_pass_as_they_came(activator: Running) -> None:
    async with Backend() as backend, await activator.caller() as caller:
        await activator.serve(backend.endpoint)
        for target in ("/v2/a%2Fb?x=%20y&z", "/", "/a//b/../c"):
            caller.writer.write(head("GET", target))
            assert (await caller.answer()).body == target.encode()


async def test_head_and_bodyless_answers_keep_the_connection_usable(activator: Running) -> None:
    async def handler(call: Call) -> None:
        if call.head.startswith(b"HEAD"):
            call.writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
        elif b"/304" in call.head:
            call.writer.write(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n")
        elif b"/204" in call.head:
            call.writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            call.writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
            await call.answer(b"end")

    async with Backend(handler) as backend, await activator.caller() as caller:
        await activator.serve(backend.endpoint)
        caller.writer.write(head("HEAD", "/"))
        answer = await caller.answer(bodyless=True)
        assert (answer.status, answer.headers["content-length"]) == (200, "5")
        for status in (304, 204):
            caller.writer.write(head("GET", f"/{status}"))
            assert (await caller.answer(bodyless=True)).status == status
        caller.writer.write(head("GET", "/last"))
        assert (await caller.answer()).body == b"end"


async def test_an_answer_until_close_is_passed_whole(activator: Running) -> None:
    async def until_close(call: Call) -> None:
        await call.body()
        call.writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        call.writer.close()

    async with Backend(until_close) as backend, await activator.caller() as caller:
        await activator.serve(backend.endpoint)
        assert (await caller.post(b"x")).body == b"all of it"
        assert (await caller.post(b"x")).body == b"all of it"


async def test_an_answer_before_the_end_of_the_request_is_passed_on(activator: Running) -> None:
    async def refuse(call: Call) -> None:
        await call.answer(b"too large", status="413 Content Too Large", headers={"connection": "close"})
        await call.reader.read()  # a server that closed with bytes unread would reset its own answer away

    async with Backend(refuse) as backend, await activator.caller() as caller:
        await activator.serve(backend.endpoint)
        caller.writer.write(head(content_length=50 * MIB) + bytes(MIB))
        answer = await caller.answer()
        assert (answer.status, answer.body) == (413, b"too large")
    await activator.idle()


@pytest.mark.fault("I9")
async def test_a_request_cut_short_is_never_passed_as_complete(activator: Running) -> None:
    complete: list[bytes] = []

    async def keep(call: Call) -> None:
        complete.append(await call.body())
        await call.answer()

    async with Backend(keep) as backend, await activator.caller() as caller:
        await activator.serve(backend.endpoint)
        caller.writer.write(head(content_length=1000) + b"half")
        await eventually(lambda: backend.busy == 1)
        caller.leave()
        await activator.idle()
        await eventually(lambda: backend.busy == 0)
        assert complete == []


async def test_continue_is_said_only_when_an_endpoint_takes_the_body(activator: Running) -> None:
    async with Backend() as backend, await activator.caller() as caller:
        await activator.serve()
        caller.writer.write(head(content_length=4, expect="100-continue"))
        await activator.queued(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await caller.reader.readexactly(1)
        await activator.serve(backend.endpoint)
        assert b"100 Continue" in await caller.reader.readuntil(b"\r\n\r\n")
        caller.writer.write(b"body")
        assert (await caller.answer()).body == b"body"


@pytest.mark.bad_input("framing-ambiguous")
async def test_rubbish_is_answered_400_in_json(activator: Running) -> None:
    async with await activator.caller() as caller:
        caller.writer.write(b"this is not HTTP\r\n\r\n")
        answer = await caller.answer()
        assert answer.status == 400
        assert "HTTP" in answer.error
