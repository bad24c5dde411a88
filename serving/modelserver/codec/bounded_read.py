"""Reading a request's body: its kind, its size, and no more of it in memory than is lent."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.types import Message, Receive, Scope

from serving.modelserver.base.errors import BadRequest, ClientLeft, UnsupportedType
from serving.modelserver.base.headers import JSON_LENGTH, Headers, media_type
from serving.modelserver.base.limits import SMALL_BODY, BodyBudget
from serving.modelserver.codec.decompression import CODINGS, decompress

FORM: Final = b"application/x-www-form-urlencoded"
"""What curl calls all data, unless it is told."""
_OF_BROWSERS: Final = frozenset({b"origin", b"sec-fetch-site"})
_LONGEST_NUMBER: Final = 12  # digits


class RequestBody(msgspec.Struct, frozen=True):
    """A whole body; `json_length` is where its binary data begins, None when all of it is JSON.

    `lent` bytes are to be given back to the budget when it is not needed any more.
    """

    content: bytes
    json_length: int | None
    lent: int = 0


async def read_body(scope: Scope, receive: Receive, budget: BodyBudget, limit: int) -> RequestBody:
    """The whole body, inflated to at most `limit` bytes.

    Raises BadRequest, ClientLeft, Overloaded, TooLarge, UnsupportedType.
    """
    json_length, coding = _described(scope["headers"])
    content, lent = await read_content(receive, budget)
    if coding is None:
        return RequestBody(content, json_length, lent)
    try:
        content, inflated_lent = await decompress(content, budget, limit, coding)
    finally:
        budget.give_back(lent)
    return RequestBody(content, json_length, inflated_lent)


async def read_content(receive: Receive, budget: BodyBudget) -> tuple[bytes, int]:
    """The bytes of the whole body, and how many of them are lent. Raises ClientLeft, Overloaded."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeft
    if not message.get("more_body"):
        content: bytes = message["body"]
        lent = len(content) if len(content) > SMALL_BODY else 0
        budget.borrow(lent)
        return content, lent
    chunks: list[bytes] = []
    lent = 0
    try:
        while True:
            chunk = message["body"]
            budget.borrow(len(chunk))
            lent += len(chunk)
            chunks.append(chunk)
            if not message.get("more_body"):
                return b"".join(chunks), lent
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
    except BaseException:
        budget.give_back(lent)
        raise


class ReplayReceive:
    """ASGI's `receive` of a request whose body is known: that in one piece, then what else comes."""

    __slots__ = ("_content", "_receive")

    def __init__(self, content: bytes, receive: Receive) -> None:
        self._content: bytes | None = content
        self._receive = receive

    async def __call__(self) -> Message:
        """The next message."""
        content, self._content = self._content, None
        if content is None:
            return await self._receive()
        return {"type": "http.request", "body": content, "more_body": False}


def _described(headers: Headers) -> tuple[int | None, bytes | None]:
    """Return where binary data begins, and the body's coding. Raises UnsupportedType for another kind, BadRequest."""
    json_length, content_type, coding = None, b"", None
    for name, value in headers:
        if name == b"content-type":
            if content_type:
                raise UnsupportedType("a body has one Content-Type")
            content_type = value
        elif name == JSON_LENGTH:
            if json_length is not None:
                raise BadRequest("Inference-Header-Content-Length is given twice")
            json_length = _number(value)
        elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            if coding is not None or value.strip().lower() not in CODINGS:
                raise UnsupportedType("a body has one Content-Encoding: gzip or deflate")
            coding = value.strip().lower()
    if not content_type:
        _check_is_no_page(headers)
    elif content_type != b"application/json":
        _check_type(content_type)
    return json_length, coding


def _check_is_no_page(headers: Headers) -> None:
    """Refuse a body without a type from a browser, which sends those to other sites without asking them first."""
    if any(name in _OF_BROWSERS for name, _ in headers):
        raise UnsupportedType("a web page names the type of its body: send Content-Type: application/json")


def _number(value: bytes) -> int:
    if not value.isdigit() or len(value) > _LONGEST_NUMBER:
        raise BadRequest("Inference-Header-Content-Length is no number of bytes")
    return int(value)


def _check_type(content_type: bytes) -> None:
    """Refuse what is neither JSON nor bytes; clients that name no type (Triton's on aiohttp) send JSON as bytes."""
    kind, is_utf8 = media_type(content_type)
    if kind == b"application/octet-stream" or (kind == b"application/json" and is_utf8):
        return
    remedy = ": call curl with -H 'Content-Type: application/json'" if kind == FORM else ""
    raise UnsupportedType(f"the body is application/json in UTF-8, or application/octet-stream{remedy}")
