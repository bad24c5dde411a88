"""Headers of a request that describe its body, and the memory that the body takes."""

from __future__ import annotations

import pytest
from starlette.types import Message

from serving.modelserver.base.errors import InvalidRequest, Overloaded, ServingError, UnsupportedType
from serving.modelserver.base.limits import SMALL_BODY, BodyBudget
from serving.modelserver.codec.bounded_read import ReplayReceive, read_body


async def whole() -> Message:
    return {"type": "http.request", "body": b"{}", "more_body": False}


@pytest.mark.parametrize(
    ("name", "values", "error"),
    [
        (b"content-type", (b"application/x-pickle", b"application/json"), UnsupportedType),
        (b"inference-header-content-length", (b"1", b"2"), InvalidRequest),
    ],
)
async def test_a_header_that_says_two_things_is_refused(
    name: bytes, values: tuple[bytes, ...], error: type[ServingError]
) -> None:
    with pytest.raises(error):
        await read_body({"headers": [(name, value) for value in values]}, whole, BodyBudget(10), 10)


@pytest.mark.parametrize(("size", "lent"), [(SMALL_BODY, 0), (SMALL_BODY + 1, SMALL_BODY + 1)])
async def test_a_large_body_is_lent_also_when_it_comes_in_one_piece(size: int, lent: int) -> None:
    budget = BodyBudget(2 * SMALL_BODY)
    body = await read_body({"headers": []}, ReplayReceive(b" " * size, whole), budget, size)
    assert (body.lent, budget.lent) == (lent, lent)


async def test_a_large_body_in_one_piece_is_refused_when_there_is_no_memory_left() -> None:
    budget = BodyBudget(SMALL_BODY)
    with pytest.raises(Overloaded):
        await read_body({"headers": []}, ReplayReceive(b" " * (SMALL_BODY + 1), whole), budget, 2 * SMALL_BODY)
    assert budget.lent == 0
