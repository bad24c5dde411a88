"""What a request's headers say about its body: once, or not at all."""

from __future__ import annotations

import pytest
from starlette.types import Message

from serving.server.body import read_body
from serving.server.errors import BadRequest, ServingError, UnsupportedType
from serving.server.limits import BodyBudget


async def whole() -> Message:
    return {"type": "http.request", "body": b"{}", "more_body": False}


@pytest.mark.parametrize(
    ("name", "values", "error"),
    [
        (b"content-type", (b"application/x-pickle", b"application/json"), UnsupportedType),
        (b"inference-header-content-length", (b"1", b"2"), BadRequest),
    ],
)
async def test_a_header_that_says_two_things_is_refused(
    name: bytes, values: tuple[bytes, ...], error: type[ServingError]
) -> None:
    with pytest.raises(error):
        await read_body({"headers": [(name, value) for value in values]}, whole, BodyBudget(10), 10)
