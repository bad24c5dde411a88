"""Compress answers for callers that accept it, piece by piece, so that the event loop is free in between.

Each answer that could be compressed says `Vary: Accept-Encoding`, also to a caller that accepts no coding: a cache must
not give it to another one (RFC 9110, 12.5.5). Answers that are never compressed do not: small ones, streams, and those
that have a coding already.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.modelserver.base.headers import Headers
from serving.modelserver.codec.decompression import CODINGS

LEAST: Final = 1024
"""Bytes of an answer below which its head and the packet around it weigh more than what would be saved."""
STEP: Final = 64 * 1024  # bytes that are compressed between two looks at other requests: under a millisecond
LEVEL: Final = 1  # the fastest: it saves most of what the slower ones do
WORTH: Final = 0.9  # the share of its first step that an answer may keep; numbers without a pattern keep more
_ACCEPTED: Final = b"accept-encoding"
_LENGTH: Final = b"content-length"
_ENCODING: Final = b"content-encoding"


class CompressionMiddleware:
    """ASGI application around another one; answers in one piece are compressed, streams pass as they are."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        offers = [value for name, value in scope["headers"] if name == _ACCEPTED]
        await self._app(scope, receive, _Negotiated(accepted_coding(b",".join(offers)) if offers else None, send))


class _Negotiated:
    """ASGI's `send` for an answer in `coding`, None for no coding."""

    __slots__ = ("_coding", "_send", "_start")

    def __init__(self, coding: bytes | None, send: Send) -> None:
        self._coding = coding
        self._send = send
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        start, self._start = self._start, None
        if start is None:
            if message["type"] == "http.response.start":
                self._start = message
            else:
                await self._send(message)
            return
        body: bytes = message.get("body", b"")
        if len(body) >= LEAST and not message.get("more_body") and not _is_encoded(start["headers"]):
            headers = [*start["headers"], (b"vary", b"Accept-Encoding")]
            if self._coding is not None and (smaller := await compress(body, self._coding)) is not None:
                headers = [header for header in headers if header[0] != _LENGTH]
                headers += [(_LENGTH, b"%d" % len(smaller)), (_ENCODING, self._coding)]
                message = {**message, "body": smaller}
            start = {**start, "headers": headers}
        await self._send(start)
        await self._send(message)


async def compress(body: bytes, coding: bytes) -> bytes | None:
    """Return the body in a coding of `CODINGS`, None when its beginning hardly becomes smaller."""
    deflater = zlib.compressobj(LEVEL, wbits=CODINGS[coding])
    view, pieces = memoryview(body), list[bytes]()
    for begin in range(0, len(body), STEP):
        pieces.append(deflater.compress(view[begin : begin + STEP]))
        if not begin:
            pieces.append(deflater.flush(zlib.Z_SYNC_FLUSH))
            if sum(map(len, pieces)) > WORTH * min(STEP, len(body)):
                return None
        if begin + STEP < len(body):
            await asyncio.sleep(0)
    pieces.append(deflater.flush())
    return b"".join(pieces)


def accepted_coding(accepted: bytes) -> bytes | None:
    """Return the coding for an answer to a caller that sent this Accept-Encoding, None for no coding. Pure.

    Example:
        accepted_coding(b"br, gzip;q=0.8, deflate")  # b"gzip"
    """
    weights = {}
    for offer in accepted.lower().split(b","):
        coding, _, parameter = offer.partition(b";")
        weights[coding.strip()] = parameter.replace(b" ", b"")
    for coding in (b"gzip", b"deflate"):
        weight = weights.get(coding, weights.get(b"*", b"q=0"))
        if not weight.startswith(b"q=0") or weight.strip(b"q=0."):
            return coding
    return None


def _is_encoded(headers: Headers) -> bool:
    return any(name == _ENCODING for name, _ in headers)
