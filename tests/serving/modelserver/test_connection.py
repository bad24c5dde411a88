"""Limits of a connection on framing, sizes and time, with the bytes of hostile and broken clients."""

from __future__ import annotations

import asyncio
import gc
import json

import pytest

from clusters.net.server.connection import HttpConnection
from serving.modelserver.base.limits import ServerLimits
from tests.serving.modelserver.client import ask, request, tensor
from tests.serving.modelserver.conftest import NAME, Running, Serve
from tests.support import models
from tests.support.wait import eventually

INFER = f"/v2/models/{NAME}/infer"
BODY = json.dumps({"inputs": [tensor([1.0])]}).encode()
HURRY = ServerLimits(head_time=0.15, body_check=0.1, linger=0.05)
"""Limits with short times (s), for tests that wait for them."""


def chunked(*chunks: bytes, trailers: bytes = b"") -> bytes:
    """Return a chunked POST."""
    head = request("POST", INFER, transfer_encoding="chunked")
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailers + b"\r\n"


def head(*lines: str, target: str = "/v2", method: str = "GET") -> bytes:
    """Return a head with exactly these lines."""
    return "\r\n".join((f"{method} {target} HTTP/1.1", *lines, "", "")).encode()


REFUSED = {
    "no host": (head(), 400),
    "two hosts": (head("Host: a", "Host: b"), 400),
    "both lengths": (
        head("Host: a", "Content-Length: 5", "Transfer-Encoding: chunked", method="POST") + b"0\r\n\r\n",
        400,
    ),
    "two lengths": (head("Host: a", "Content-Length: 5", "Content-Length: 6", method="POST") + b"hello", 400),
    "two equal lengths": (head("Host: a", "Content-Length: 5", "Content-Length: 5", method="POST") + b"hello", 400),
    "a length that is no number": (head("Host: a", "Content-Length: +5", method="POST") + b"hello", 400),
    "another encoding": (head("Host: a", "Transfer-Encoding: gzip, chunked", method="POST") + b"0\r\n\r\n", 400),
    "an encoding in disguise": (head("Host: a", "Transfer-Encoding: xchunked", method="POST") + b"0\r\n\r\n", 400),
    "a folded header": (head("Host: a", "X: 1\r\n 2"), 400),
    "a space before the colon": (head("Host : a"), 400),
    "a NUL in a header": (head("Host: a", "X: \0"), 400),
    "an absolute target": (head("Host: a", target="http://b/v2"), 400),
    "an authority": (head("Host: a", target="b:80", method="CONNECT"), 400),
    "a bad end of a chunk": (request("POST", INFER, transfer_encoding="chunked") + b"3\r\nabcXX0\r\n\r\n", 400),
    "a size of a chunk that is none": (request("POST", INFER, transfer_encoding="chunked") + b"-3\r\nabc\r\n", 400),
    "no HTTP": (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", 400),
    "HTTP/2 by prior knowledge": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "200 kB of a header": (head("Host: a", "X: " + "x" * 200_000), 431),
    "33 kB of headers": (head("Host: a", *(f"X{n}: {'x' * 990}" for n in range(33))), 431),
    "101 headers": (head("Host: a", *(f"X{n}: 1" for n in range(100))), 431),
    "a length beyond the limit": (head("Host: a", "Content-Length: 99999999999", method="POST", target=INFER), 413),
    "an upgrade with a body": (
        head("Host: a", "Connection: upgrade", "Upgrade: h2c", "Content-Length: 2", method="POST") + b"{}",
        400,
    ),
}  # fmt: skip


@pytest.mark.bad_input("framing-ambiguous", "framing-heads")
@pytest.mark.parametrize(("sent", "status"), REFUSED.values(), ids=REFUSED)
async def test_what_could_be_read_in_two_ways_is_refused_and_the_connection_ends(
    serve: Serve, sent: bytes, status: int
) -> None:
    running = await serve(models.double(), limits=ServerLimits(linger=0.01))
    caller = await running.connect()
    await caller.send(sent)
    answer = await caller.answer()
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert answer.error and answer.headers["knodel-revision"]
    assert await caller.ended() == b""
    caller.close()
    assert (await running.get("/v2/health/live")).status == 200


@pytest.mark.bad_input("framing-ambiguous")
async def test_a_request_smuggled_behind_a_refused_one_is_not_answered(double: Running) -> None:
    smuggled = request("GET", "/v2/health/live")
    caller = await double.connect()
    await caller.send(
        head("Host: a", "Content-Length: 5", "Transfer-Encoding: chunked", method="POST") + b"0\r\n\r\n" + smuggled
    )
    assert (await caller.answer()).status == 400
    assert await caller.ended() == b""
    caller.close()


async def test_http_1_0_needs_no_host_and_ends_the_connection(double: Running) -> None:
    caller = await double.connect()
    await caller.send(b"GET /v2/health/live HTTP/1.0\r\n\r\n")
    assert (await caller.answer()).headers["connection"] == "close"
    assert await caller.ended() == b""
    caller.close()


async def test_an_upgrade_that_is_not_known_is_ignored(double: Running) -> None:
    caller = await double.connect()
    await caller.send(head("Host: a", "Connection: Upgrade", "Upgrade: websocket", target="/v2/health/live"))
    assert (await caller.answer()).json == {"live": True}
    assert await caller.ended() == b""
    caller.close()


async def test_a_connection_takes_request_after_request_also_at_once(double: Running) -> None:
    caller = await double.connect()
    for _ in range(2):
        await caller.send(request("POST", INFER, BODY) * 3)
        assert [(await caller.answer()).status for _ in range(3)] == [200] * 3
    caller.close()


async def test_head_is_answered_without_a_body(double: Running) -> None:
    caller = await double.connect()
    await caller.send(request("HEAD", "/v2/health/live", connection="close"))
    sent = await caller.ended()
    assert sent.startswith(b"HTTP/1.1 200 OK\r\n") and sent.endswith(b"\r\n\r\n")
    caller.close()


async def test_a_bad_request_behind_a_good_one_leaves_the_good_ones_answer_alone(double: Running) -> None:
    caller = await double.connect()
    await caller.send(request("POST", INFER, BODY) + head())
    assert (await caller.answer()).status == 200
    assert b"knodel-revision" not in await caller.ended()
    caller.close()


async def test_a_body_in_chunks_is_read_and_trailers_are_no_headers(double: Running) -> None:
    trailers = b"Content-Encoding: gzip\r\n"
    assert (await ask(double.port, chunked(BODY[:7], BODY[7:], trailers=trailers))).status == 200


async def test_a_body_is_asked_for_when_the_caller_expects_that(double: Running) -> None:
    caller = await double.connect()
    await caller.send(request("POST", INFER, expect="100-continue", content_length=str(len(BODY))))
    assert (await caller.answer()).status == 100
    await caller.send(BODY)
    assert (await caller.answer()).status == 200
    caller.close()


@pytest.mark.fault("M8")
async def test_a_body_too_large_is_refused_before_it_is_asked_for(double: Running) -> None:
    caller = await double.connect()
    await caller.send(request("POST", INFER, expect="100-continue", content_length=str(300 << 20)))
    assert (await caller.answer()).status == 413
    caller.close()


@pytest.mark.bad_input("infer-size")
@pytest.mark.fault("M8")
async def test_a_body_in_chunks_is_counted_while_it_comes(serve: Serve) -> None:
    running = await serve(models.double(), limits=ServerLimits(body=300_000))
    caller = await running.connect()
    await caller.send(chunked(*[b" " * 50_000] * 10))
    answer = await caller.answer()
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    caller.close()


async def test_more_bodies_than_there_is_memory_for_are_429(serve: Serve) -> None:
    running = await serve(models.double(), limits=ServerLimits(body_memory=300_000))
    first = await running.connect()
    await first.send(request("POST", INFER, content_length="250000") + b" " * 200_000)
    answer = await ask(running.port, request("POST", INFER, b" " * 200_000))
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    first.close()


@pytest.mark.bad_input("infer-size")
async def test_more_json_numbers_than_allowed_are_413(serve: Serve) -> None:
    running = await serve(models.double(), limits=ServerLimits(json_numbers=1000))
    assert (await running.infer(tensor([1.0] * 1100))).status == 413
    assert (await running.infer(tensor([1.0] * 900))).status == 200


async def test_a_caller_that_says_nothing_is_cut_off(serve: Serve) -> None:
    running = await serve(models.double(), limits=HURRY)
    caller = await running.connect()
    assert await caller.ended() == b""
    caller.close()


@pytest.mark.bad_input("framing-heads")
@pytest.mark.parametrize("sent", [b"G", b"GET /v2 HTTP/1.1\r\nHost: a\r\n", request("POST", INFER, BODY) + b"GE"])
@pytest.mark.fault("M7")
async def test_a_head_that_does_not_end_is_408(serve: Serve, sent: bytes) -> None:
    running = await serve(models.double(), limits=HURRY)
    caller = await running.connect()
    await caller.send(sent)
    answer = await caller.answer()
    if answer.status == 200:
        answer = await caller.answer()
    assert answer.status == 408
    assert await caller.ended() == b""
    caller.close()


@pytest.mark.parametrize("begun", [b"", b"{"])
@pytest.mark.fault("M7")
async def test_a_body_that_does_not_come_is_408(serve: Serve, begun: bytes) -> None:
    running = await serve(models.double(), limits=HURRY)
    caller = await running.connect()
    await caller.send(request("POST", INFER, content_length="100") + begun)
    assert (await caller.answer()).status == 408
    assert await caller.ended() == b""
    caller.close()
    assert (await running.infer(tensor([1.0]))).status == 200
    assert (await running.stats())["active"] == 0


async def test_a_body_that_stops_after_a_quick_start_is_408(serve: Serve) -> None:
    running = await serve(models.double(), limits=HURRY)
    caller = await running.connect()
    await caller.send(request("POST", INFER, content_length="60000000") + b" " * 4_000_000)
    assert (await caller.answer()).status == 408
    assert await caller.ended() == b""
    caller.close()


@pytest.mark.fault("M7")
async def test_a_body_that_comes_slowly_without_end_is_408(serve: Serve) -> None:
    limits = ServerLimits(body_check=0.05, body_rate=1, body_time=0.2, linger=0.01)
    running = await serve(models.double(), limits=limits)
    caller = await running.connect()
    await caller.send(request("POST", INFER, content_length="60000000"))
    with pytest.raises(ConnectionError):
        while True:
            await caller.send(b" " * 100)
            await asyncio.sleep(0.01)  # slow, and steady
    caller.close()


@pytest.mark.parametrize(
    "endless",
    [b"0\r\n" + b"a:b\r\n" * 100_000, b"0\r\na: " + b"b" * 500_000, b"1;" + b"x" * 500_000],
    ids=["many trailers", "a trailer", "an extension of a chunk"],
)
async def test_what_surrounds_a_body_in_chunks_has_a_bound(double: Running, endless: bytes) -> None:
    caller = await double.connect()
    await caller.send(request("POST", INFER, transfer_encoding="chunked") + b"1\r\n{\r\n")
    await caller.send(endless)
    answer = await caller.answer()
    assert (answer.status, answer.headers["connection"]) == (431, "close")
    caller.close()


async def test_a_body_in_chunks_may_come_in_very_small_ones(double: Running) -> None:
    spaces = [b" "] * 20_000
    assert (await ask(double.port, chunked(*spaces, BODY))).status == 200


async def test_an_idle_connection_is_kept(serve: Serve) -> None:
    running = await serve(models.double(), limits=HURRY)
    caller = await running.connect()
    await caller.send(request("POST", INFER, BODY))
    assert (await caller.answer()).status == 200
    silent = await running.connect()
    await silent.ended()  # longer than a head may take
    silent.close()
    await caller.send(request("POST", INFER, BODY))
    assert (await caller.answer()).status == 200
    caller.close()


async def test_a_body_without_end_is_cut_off_though_its_answer_is_out(serve: Serve) -> None:
    running = await serve(models.double(), limits=ServerLimits(body=200_000))
    caller = await running.connect()
    await caller.send(request("POST", "/elsewhere", transfer_encoding="chunked"))
    assert (await caller.answer()).status == 404
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    with pytest.raises(ConnectionError):
        for _ in range(1000):
            await caller.send(chunk)
    caller.close()


async def test_a_connection_that_ended_and_what_it_sent_need_no_garbage_collector(serve: Serve) -> None:
    running = await serve(models.double())

    def kept() -> int:
        return sum(isinstance(one, HttpConnection) for one in gc.get_objects())

    gc.collect()
    before = kept()
    gc.disable()
    try:
        for target in (INFER, "/v2/none"):
            caller = await running.connect()
            await caller.send(request("POST", target, BODY))
            await caller.answer()
            caller.close()
        await eventually(lambda: kept() == before)
    finally:
        gc.enable()
