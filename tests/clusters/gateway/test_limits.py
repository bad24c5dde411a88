"""Requests that a real Envoy refuses: invalid framing, too large, too slow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clusters.base.clock import SystemClock
from clusters.gateway.envoy import Envoy
from clusters.gateway.limits import GatewayLimits
from tests.clusters.gateway.backends import Backend, ask, raw
from tests.clusters.gateway.tables import HEAD, is_error
from tests.support.ports import free_port

BAD_REQUESTS = {
    "length and chunks": b"POST / HTTP/1.1\r\n"
    + HEAD
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "length with a sign": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: +5\r\n\r\nhello",
    "negative length": b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: -5\r\n\r\nhello",
    "bad chunk size": b"POST / HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    "bad chunk end": b"POST / HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\n" + HEAD + b"Host: other\r\n\r\n",
    "target with a host": b"GET http://other/ HTTP/1.1\r\n" + HEAD + b"\r\n",
    "space before the colon": b"GET / HTTP/1.1\r\n" + HEAD + b"X-A : a\r\n\r\n",
    "null byte": b"GET / HTTP/1.1\r\n" + HEAD + b"X-A: a\0b\r\n\r\n",
    "underscore": b"GET / HTTP/1.1\r\n" + HEAD + b"Content_Length: 5\r\n\r\n",
    "escaped slash": b"GET /v2%2fmodels HTTP/1.1\r\n" + HEAD + b"\r\n",
}


@pytest.mark.bad_input("framing-ambiguous")
async def test_bad_framing_is_refused_and_nobody_is_given_the_request(served: int, first: Backend) -> None:
    answers = {name: await raw(served, request) for name, request in BAD_REQUESTS.items()}
    assert {name: answer.status for name, answer in answers.items() if not is_error(answer, 400)} == {}
    assert first.answered == 0


async def test_a_folded_header_arrives_unfolded(served: int, first: Backend) -> None:
    await raw(served, b"GET / HTTP/1.1\r\n" + HEAD + b"X-A: a\r\n b\r\n\r\n")
    assert first.requests[-1].headers["X-A"] == "a b"


async def test_an_unknown_transfer_encoding_is_refused(served: int, first: Backend) -> None:
    head = b"POST / HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n"
    assert is_error(await raw(served, head), 501)
    assert first.requests == []


async def test_protocols_are_not_switched(served: int, first: Backend) -> None:
    upgrade = {"Connection": "upgrade", "Upgrade": "websocket"}
    assert is_error(await ask(served, headers=upgrade), 403)
    assert first.requests == []


@pytest.mark.bad_input("framing-heads")
async def test_large_and_many_headers_are_431(served: int) -> None:
    assert is_error(await ask(served, headers={"X-A": "a" * 33_000}), 431)
    assert is_error(await ask(served, headers={f"X-{number}": "a" for number in range(101)}), 431)
    assert (await ask(served, headers={f"X-{number}": "a" for number in range(90)})).status == 200


@pytest.mark.fault("I6")
async def test_a_body_that_announces_too_much_is_413_before_it_is_sent(served: int, first: Backend) -> None:
    for length in (64 * 2**20 + 1, 2**63 - 1, 2**64 - 1):
        answer = await raw(served, b"POST / HTTP/1.1\r\n" + HEAD + f"Content-Length: {length}\r\n\r\n".encode())
        assert is_error(answer, 413), length
        assert "64 MiB" in answer.json["error"]
    assert first.requests == []


async def test_large_bodies_pass_with_and_without_a_length(served: int) -> None:
    body = b"x" * (13 * 2**20)
    assert (await ask(served, method="POST", body=body)).json["bytes"] == len(body)
    chunks = b"".join(b"100000\r\n" + b"x" * 2**20 + b"\r\n" for _ in range(13))
    head = b"POST / HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    assert (await raw(served, head + chunks + b"0\r\n\r\n")).json["bytes"] == len(body)


@pytest.mark.bad_input("framing-heads")
async def test_headers_that_drip_are_cut_off(tmp_path: Path) -> None:
    gateway = Envoy(tmp_path, "127.0.0.1", free_port(), SystemClock(), GatewayLimits(header_seconds=0.1))
    await gateway.start()
    try:
        assert is_error(await raw(gateway.port, b"GET / HTTP/1.1\r\nHost: a"), 408)
    finally:
        await gateway.stop(grace=0.0)


@pytest.mark.bad_input("framing-http2")
async def test_http2_is_spoken_with_a_bound_on_streams(served: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served)
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    head = await reader.readexactly(9)
    settings = await reader.readexactly(int.from_bytes(head[:3], "big"))
    writer.close()
    assert head[3] == 4, "a SETTINGS frame"
    pairs = [settings[start : start + 6] for start in range(0, len(settings), 6)]
    values = {int.from_bytes(pair[:2], "big"): int.from_bytes(pair[2:], "big") for pair in pairs}
    assert values[3] == 100, "SETTINGS_MAX_CONCURRENT_STREAMS"
