"""Compressed responses: negotiation, exceptions and cost."""

from __future__ import annotations

import asyncio
import gzip
import os
import zlib
from collections.abc import Callable, Mapping, Sequence

import pytest
from starlette.types import Message, Receive, Scope, Send

from serving.modelserver.base.headers import Headers
from serving.modelserver.connections.compression import MIN_SIZE, STEP, CompressionMiddleware, accepted_coding, compress
from tests.serving.modelserver.client import tensor
from tests.serving.modelserver.conftest import Running

LARGE = tensor([1.5] * 20_000)
DECODE: Mapping[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_large_answer_is_compressed_for_who_accepts_it(double: Running, coding: str) -> None:
    plain = await double.post({"inputs": [LARGE]})
    answer = await double.post({"inputs": [LARGE]}, accept_encoding=coding)
    assert "content-encoding" not in plain.headers and plain.headers["vary"] == "Accept-Encoding"
    assert (answer.headers["content-encoding"], answer.headers["vary"]) == (coding, "Accept-Encoding")
    assert int(answer.headers["content-length"]) == len(answer.body) < len(plain.body) / 10
    assert DECODE[coding](answer.body) == plain.body


async def test_binary_outputs_keep_the_length_of_their_json(double: Running) -> None:
    body = {"inputs": [LARGE], "parameters": {"binary_data_output": True}}
    plain = await double.post(body)
    answer = await double.post(body, accept_encoding="gzip")
    length = "inference-header-content-length"
    assert gzip.decompress(answer.body) == plain.body and answer.headers[length] == plain.headers[length]


async def test_small_answers_and_errors_stay_as_they_are(double: Running) -> None:
    small = await double.post({"inputs": [tensor([1.0])]}, accept_encoding="gzip")
    wrong = await double.post({"inputs": []}, accept_encoding="gzip")
    assert (small.status, wrong.status) == (200, 400)
    for answer in (small, wrong):
        assert not {"content-encoding", "vary"} & set(answer.headers)


async def answered(accepted: Sequence[bytes], headers: Headers, *bodies: bytes) -> list[Message]:
    """Return the messages of a response in `pieces` to a client with these Accept-Encoding headers."""
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for left, body in zip(reversed(range(len(bodies))), bodies, strict=True):
            await send({"type": "http.response.body", "body": body, "more_body": left > 0})
            assert len(sent) == 1 + len(bodies) - left, "each piece leaves at once"

    async def receive() -> Message:
        return {}

    async def send(message: Message) -> None:
        sent.append(message)

    await CompressionMiddleware(app)({"headers": [(b"accept-encoding", value) for value in accepted]}, receive, send)
    return sent


async def test_an_answer_in_pieces_passes_as_it_is() -> None:
    headers = [(b"content-type", b"text/event-stream")]
    start, *pieces = await answered([b"gzip"], headers, b"x" * MIN_SIZE, b"x" * MIN_SIZE)
    assert [piece["body"] for piece in pieces] == [b"x" * MIN_SIZE, b"x" * MIN_SIZE]
    assert start["headers"] == headers


@pytest.mark.parametrize("accepted", [b"identity", b"br", b"gzip"])
async def test_an_answer_that_has_a_coding_keeps_its_headers(accepted: bytes) -> None:
    headers = [(b"content-encoding", b"br"), (b"vary", b"Accept-Language")]
    start, _ = await answered([accepted], headers, b"x" * MIN_SIZE)
    assert start["headers"] == headers


async def test_a_header_that_an_answer_varies_by_is_kept() -> None:
    start, _ = await answered([], [(b"vary", b"Accept")], b"x" * MIN_SIZE)
    assert start["headers"] == [(b"vary", b"Accept"), (b"vary", b"Accept-Encoding")]


async def test_all_headers_of_what_is_accepted_count() -> None:
    start, _ = await answered([b"br", b"deflate"], [], b"x" * MIN_SIZE)
    assert dict(start["headers"])[b"content-encoding"] == b"deflate"


async def test_noise_is_sent_as_it_is_but_varies(double: Running) -> None:
    noise = tensor([float(value) for value in os.urandom(4 * MIN_SIZE)])
    body = {"inputs": [noise], "parameters": {"binary_data_output": True}}
    answers = [await double.post(body, accept_encoding=accepted) for accepted in ("gzip", "identity", "gzip;q=0")]
    assert {answer.headers["vary"] for answer in answers} == {"Accept-Encoding"}


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        (b"gzip", b"gzip"),
        (b"br, GZIP;q=0.8, deflate", b"gzip"),
        (b"deflate", b"deflate"),
        (b"gzip;q=0, deflate", b"deflate"),
        (b"gzip; q=0.0", None),
        (b"gzip;q=0.001", b"gzip"),
        (b"*", b"gzip"),
        (b"gzip;q=0, *", b"deflate"),
        (b"*;q=0", None),
        (b"identity", None),
        (b"br", None),
        (b"", None),
        (b";;,,", None),
    ],
)
def test_the_coding_is_one_that_is_accepted(accepted: bytes, coding: bytes | None) -> None:
    assert accepted_coding(accepted) == coding


async def test_noise_is_given_up_after_its_first_step() -> None:
    assert await compress(os.urandom(MIN_SIZE), b"gzip") is None
    assert await compress(os.urandom(STEP) + bytes(10 * STEP), b"gzip") is None


@pytest.mark.parametrize("size", [MIN_SIZE, STEP - 1, STEP, STEP + 1, 5 * STEP])
async def test_the_event_loop_is_free_between_steps(size: int) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    made = await compress(body, b"gzip")
    beside.cancel()
    assert made is not None and gzip.decompress(made) == body
    assert turns >= (size - 1) // STEP
