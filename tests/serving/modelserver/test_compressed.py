"""Compressed request bodies: accepted codings, size limits and errors."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.modelserver.base.errors import ContentTooLarge, InvalidRequest, Overloaded, ServingError
from serving.modelserver.base.limits import MEBIBYTE, BodyBudget, ServerLimits
from serving.modelserver.codec.decompression import INPUT_STEP, MAX_MEMBERS, OUTPUT_STEP, decompress
from tests.serving.modelserver.client import tensor
from tests.serving.modelserver.conftest import NAME, Running, Serve
from tests.support import models

BODY = json.dumps({"inputs": [tensor([1.0, 2.0])]}).encode()
ENOUGH = 4 * MEBIBYTE


async def inflate(content: bytes, limit: int = ENOUGH, budget: int = ENOUGH) -> bytes:
    """Decompress, and assert that the budget covers exactly the result."""
    lender = BodyBudget(budget)
    try:
        made, lent = await decompress(content, lender, limit)
    except ServingError:
        assert lender.lent == 0
        raise
    assert lent == lender.lent == len(made)
    return made


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP"])
async def test_a_compressed_request_is_answered(double: Running, coding: str) -> None:
    answer = await double.post(gzip.compress(BODY), content_encoding=coding)
    assert answer.json["outputs"][0]["data"] == [2.0, 4.0]
    v1 = await double.post(gzip.compress(b'{"instances": [3]}'), f"/v1/models/{NAME}:predict", content_encoding=coding)
    assert v1.json == {"predictions": [6.0]}


@pytest.mark.bad_input("infer-size")
@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "identity, gzip", "deflate, gzip"])
async def test_other_codings_are_415(double: Running, coding: str) -> None:
    answer = await double.post(gzip.compress(BODY), content_encoding=coding)
    assert answer.status == 415 and "gzip" in answer.error


@pytest.mark.bad_input("infer-size")
async def test_a_bomb_is_413_and_harms_nothing(serve: Serve) -> None:
    running = await serve(models.double(), limits=ServerLimits(body=MEBIBYTE))
    bomb = gzip.compress(b'{"inputs": "' + b" " * 100 * MEBIBYTE, 1)
    assert len(bomb) < MEBIBYTE
    answer = await running.post(bomb, content_encoding="gzip")
    assert answer.status == 413 and "1 MiB" in answer.error
    assert (await running.infer(tensor([1.0]))).status == 200


async def test_a_request_in_deflate_is_answered_within_the_same_bounds(serve: Serve) -> None:
    running = await serve(models.double(), limits=ServerLimits(body=MEBIBYTE))
    answer = await running.post(zlib.compress(BODY), content_encoding="deflate")
    assert answer.json["outputs"][0]["data"] == [2.0, 4.0]
    bomb = zlib.compress(b'{"inputs": "' + b" " * 100 * MEBIBYTE, 1)
    assert (await running.post(bomb, content_encoding="deflate")).status == 413
    for wrong in (BODY, gzip.compress(BODY), zlib.compress(BODY)[:-1], zlib.compress(BODY) + b"x"):
        assert (await running.post(wrong, content_encoding="deflate")).status == 400


@pytest.mark.parametrize("coding", ["identity", "Identity", ""])
async def test_a_body_without_a_coding_may_say_so(double: Running, coding: str) -> None:
    assert (await double.post(BODY, content_encoding=coding)).status == 200


async def test_what_is_no_gzip_is_400(double: Running) -> None:
    for wrong in (BODY, zlib.compress(BODY), gzip.compress(BODY)[:-1], gzip.compress(BODY) + b"x"):
        assert (await double.post(wrong, content_encoding="gzip")).status == 400


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        b"0" * OUTPUT_STEP,
        b"0" * (OUTPUT_STEP + 1),
        b"ab" * OUTPUT_STEP,
        os.urandom(INPUT_STEP),
        os.urandom(5 * INPUT_STEP + 1),
    ],
    ids=["nothing", "a byte", "one piece", "a byte more", "two pieces", "noise of a step", "noise of steps"],
)
async def test_all_of_it_comes_back(content: bytes) -> None:
    assert await inflate(gzip.compress(content)) == content


@given(st.binary(max_size=300), st.integers(0, 9), st.integers(0, 400), st.integers(0, 255))
@settings(max_examples=100, deadline=None)
async def test_a_damaged_body_is_refused_or_comes_back_whole(data: bytes, level: int, place: int, byte: int) -> None:
    damaged = bytearray(gzip.compress(data, level))
    damaged[place % len(damaged)] = byte
    with contextlib.suppress(InvalidRequest):
        assert await inflate(bytes(damaged)) == data


async def test_exactly_the_limit_is_taken_and_a_byte_more_is_not() -> None:
    content = gzip.compress(b"0" * MEBIBYTE)
    assert len(await inflate(content, limit=MEBIBYTE)) == MEBIBYTE
    with pytest.raises(ContentTooLarge):
        await inflate(content, limit=MEBIBYTE - 1)


async def test_memory_that_is_not_there_is_not_lent() -> None:
    with pytest.raises(Overloaded):
        await inflate(gzip.compress(b"0" * MEBIBYTE), budget=MEBIBYTE // 2)


@pytest.mark.parametrize(
    "parts",
    [
        [b"a", b"b"],
        [b"", b"a", b"", b"b", b""],
        [b"0" * OUTPUT_STEP, b"1" * (OUTPUT_STEP + 1), b"2"],
        [os.urandom(INPUT_STEP - 30), os.urandom(5 * INPUT_STEP), os.urandom(3)],
        [b"x"] * MAX_MEMBERS,
    ],
    ids=["two", "empty ones", "pieces", "noise", "as many as allowed"],
)
async def test_members_one_behind_another_are_one_body(parts: list[bytes]) -> None:
    assert await inflate(b"".join(map(gzip.compress, parts))) == b"".join(parts)


async def test_a_request_of_two_members_is_answered(double: Running) -> None:
    content = gzip.compress(BODY[:20]) + gzip.compress(BODY[20:])
    answer = await double.post(content, content_encoding="gzip")
    assert answer.json["outputs"][0]["data"] == [2.0, 4.0]


@pytest.mark.bad_input("infer-size")
@pytest.mark.parametrize(
    ("behind", "fault"),
    [
        (b"x" * 20, "the bytes after gzip member 1 are not a gzip member"),
        (b"\0" * 512, "the bytes after gzip member 1 are not a gzip member"),
        (gzip.compress(b"b") + b"{}" * 9, "the bytes after gzip member 2 are not a gzip member"),
        (gzip.compress(b"b")[:-1], "truncated"),
        (gzip.compress(b"b")[:5], "truncated"),
        (zlib.compress(b"b"), "the bytes after gzip member 1 are not a gzip member"),
        (gzip.compress(b"") * MAX_MEMBERS, f"more than {MAX_MEMBERS} gzip members"),
    ],
    # a gzip member has the time in it, and each process of the tests must have the same ids
    ids=["text", "zeros", "text after a member", "a byte short", "a head", "zlib", "too many"],
)
async def test_what_is_left_over_behind_a_member_is_refused(behind: bytes, fault: str) -> None:
    with pytest.raises(InvalidRequest, match=fault):
        await inflate(gzip.compress(b"a") + behind)


@pytest.mark.bad_input("infer-size")
async def test_members_share_one_limit() -> None:
    member = gzip.compress(b"0" * MEBIBYTE)
    assert len(await inflate(member * 2, limit=2 * MEBIBYTE)) == 2 * MEBIBYTE
    with pytest.raises(ContentTooLarge):
        await inflate(member * 2 + gzip.compress(b"0"), limit=2 * MEBIBYTE)
    with pytest.raises(Overloaded):
        await inflate(member * 2, budget=2 * MEBIBYTE - 1)
