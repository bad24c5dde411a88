"""Read request bodies within a memory budget, and check their type and coding."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.types import Message, Receive, Scope

from serving.modelserver.base.errors import ClientLeft, InvalidRequest, UnsupportedType
from serving.modelserver.base.headers import JSON_LENGTH, Headers, media_type
from serving.modelserver.base.limits import SMALL_BODY, BodyBudget
from serving.modelserver.codec.decompression import CODINGS, decompress

FORM_TYPE: Final = b"application/x-www-form-urlencoded"
"""The default Content-Type of curl."""
_BROWSER_HEADERS: Final = frozenset({b"origin", b"sec-fetch-site"})
_BYTES_TYPE: Final = b"application/octet-stream"
TYPES: Final = frozenset({b"application/json", _BYTES_TYPE})
"""Types of inference requests. Some clients (Triton's on aiohttp) label JSON as bytes."""
_MAX_DIGITS: Final = 12  # digits


class BufferedBody(msgspec.Struct, frozen=True):
    """A complete body; binary data begins at offset `json_length`, None if all of it is JSON.

    The owner must give `lent` bytes back to the budget when it no longer needs the body.
    """

    content: bytes
    json_length: int | None
    lent: int = 0


async def read_body(
    scope: Scope, receive: Receive, budget: BodyBudget, limit: int, types: frozenset[bytes] = TYPES
) -> BufferedBody:
    """Return the complete body, decompressed to at most `limit` bytes; its Content-Type is one of `types`.

    Raises InvalidRequest, ClientLeft, Overloaded, ContentTooLarge, UnsupportedType.
    """
    json_length, coding = _check_headers(scope["headers"], types)
    content, lent = await read_content(receive, budget)
    if coding is None:
        return BufferedBody(content, json_length, lent)
    try:
        content, decompressed_lent = await decompress(content, budget, limit, coding)
    finally:
        budget.give_back(lent)
    return BufferedBody(content, json_length, decompressed_lent)


async def read_content(receive: Receive, budget: BodyBudget) -> tuple[bytes, int]:
    """Return the bytes of the body, and how many bytes were taken from `budget`. Raises ClientLeft, Overloaded."""
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
    """An ASGI `receive` that returns a body that was read before, then forwards to the original `receive`."""

    __slots__ = ("_content", "_receive")

    def __init__(self, content: bytes, receive: Receive) -> None:
        self._content: bytes | None = content
        self._receive = receive

    async def __call__(self) -> Message:
        """Return the next message."""
        content, self._content = self._content, None
        if content is None:
            return await self._receive()
        return {"type": "http.request", "body": content, "more_body": False}


def _check_headers(headers: Headers, types: frozenset[bytes]) -> tuple[int | None, bytes | None]:
    """Return the length of the JSON part and the content coding. Raises InvalidRequest, UnsupportedType."""
    json_length, content_type, coding = None, b"", None
    for name, value in headers:
        if name == b"content-type":
            if content_type:
                raise UnsupportedType("the request has more than one Content-Type")
            content_type = value
        elif name == JSON_LENGTH:
            if json_length is not None:
                raise InvalidRequest("the request has more than one Inference-Header-Content-Length")
            if not value.isdigit() or len(value) > _MAX_DIGITS:
                raise InvalidRequest("Inference-Header-Content-Length is not a number of bytes")
            json_length = int(value)
        elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            if coding is not None or value.strip().lower() not in CODINGS:
                raise UnsupportedType("unsupported Content-Encoding: use gzip or deflate, once")
            coding = value.strip().lower()
    if not content_type:
        # browsers send bodies without a type to other sites without a preflight request
        if any(name in _BROWSER_HEADERS for name, _ in headers):
            raise UnsupportedType("a request from a web page must have Content-Type: application/json")
    elif content_type != b"application/json":
        _check_type(content_type, types)
    return json_length, coding


def _check_type(content_type: bytes, types: frozenset[bytes]) -> None:
    """Raise UnsupportedType unless it is one of `types`, in UTF-8 if it is text."""
    kind, is_utf8 = media_type(content_type)
    if kind in types and (is_utf8 or kind == _BYTES_TYPE):
        return
    remedy = "; call curl with -H 'Content-Type: application/json'" if kind == FORM_TYPE else ""
    accepted = sorted(kind.decode() for kind in types)
    raise UnsupportedType(
        f"unsupported Content-Type: the body must be {accepted[0]} in UTF-8, or {' or '.join(accepted[1:])}{remedy}"
    )
