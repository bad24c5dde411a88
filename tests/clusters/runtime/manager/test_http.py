"""The small HTTP server: bounded heads, discarded bodies, one response for each connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from clusters.base.errors import AddressInUse
from clusters.runtime.manager import http
from clusters.runtime.manager.http import HttpListener, HttpRequest, HttpResponse, parse_head
from tests.support.wait import eventually


def echo(request: HttpRequest) -> HttpResponse:
    """What was asked."""
    return HttpResponse(HTTPStatus.OK, f"{request.method} {request.path}", headers={"X-One": "1"})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Where it listens."""
    listener = HttpListener("127.0.0.1", 0, echo)
    yield await listener.start()
    await listener.close()


async def ask(port: int, sent: bytes) -> bytes:
    """All that comes back until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.read(), 5)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_request_is_answered_and_the_connection_ends(port: int) -> None:
    answer = await ask(port, b"GET /healthz?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nConnection: close\r\n" in answer
    assert b"\r\nX-One: 1\r\n" in answer
    assert answer.endswith(b"\r\n\r\nGET /healthz")


async def test_head_gets_the_length_and_no_body(port: int) -> None:
    answer = await ask(port, b"HEAD / HTTP/1.1\r\n\r\n")

    assert answer.endswith(b"\r\n\r\n")
    assert b"Content-Length: 6\r\n" in answer


@pytest.mark.bad_input("framing-ambiguous")
@pytest.mark.parametrize("line", [b"GET", b"GET / HTTP/2.0", b"GET http://a/ HTTP/1.1", b"\xff / HTTP/1.1", b"a b c d"])
async def test_what_is_no_request_is_a_400(port: int, line: bytes) -> None:
    assert (await ask(port, line + b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


@pytest.mark.bad_input("framing-heads")
async def test_a_head_that_is_too_large_is_a_431(port: int) -> None:
    sent = b"GET / HTTP/1.1\r\nX: " + b"x" * http.MOST_HEAD_BYTES + b"\r\n\r\n"

    assert (await ask(port, sent)).startswith(b"HTTP/1.1 431 ")


async def test_a_caller_that_says_nothing_is_cut_off(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_TIMEOUT", 0.05)

    assert await ask(port, b"GET /") == b""


async def test_an_answer_comes_though_the_body_is_still_being_sent(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /events HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n")
    for _ in range(50):
        writer.write(b"x" * 20_000)
    answer = await asyncio.wait_for(reader.readuntil(b"POST /events"), 5)

    assert answer.startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_a_fault_of_ours_is_a_500_and_told(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: HttpRequest) -> HttpResponse:
        raise ValueError("a fault of ours")

    listener = HttpListener("127.0.0.1", 0, broken)
    bound = await listener.start()

    assert (await ask(bound, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 500 ")
    assert "a fault of ours" in caplog.text
    await listener.close()


async def test_more_callers_than_can_be_served_are_sent_away_at_once(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MOST_CONNECTIONS", 2)
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    for _, writer in idle:
        writer.write(b"GET /")

    assert await ask(port, b"") == b""

    for _, writer in idle:
        writer.close()
        await writer.wait_closed()

    async def answered() -> bool:
        return (await ask(port, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")

    await eventually(answered)


async def test_a_taken_port_is_named(port: int) -> None:
    with pytest.raises(AddressInUse, match=f"127.0.0.1:{port}"):
        await HttpListener("127.0.0.1", port, echo).start()


async def test_closing_drops_what_is_open(caplog: pytest.LogCaptureFixture) -> None:
    listener = HttpListener("127.0.0.1", 0, echo)
    bound = await listener.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", bound)
    writer.write(b"GET /")
    await writer.drain()

    await asyncio.wait_for(listener.close(), 2)

    assert await asyncio.wait_for(reader.read(), 2) == b""
    assert not caplog.records
    writer.close()


def test_a_path_is_without_its_query() -> None:
    assert parse_head(b"POST /events?a=b HTTP/1.1\r\nHost: x\r\n\r\n") == HttpRequest("POST", "/events")
