"""Compress responses for clients that accept it, in pieces, so that the event loop can serve others in between.

Each response that could be compressed has `Vary: Accept-Encoding`, even if the client accepts no coding: caches must
not serve it to other clients (RFC 9110, 12.5.5). Small responses, streams, and responses with their own coding are
never compressed, and do not have the header.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.modelserver.codec.decompression import CODINGS

MIN_SIZE: Final = 1024
"""Minimum size of a body in bytes; the savings of smaller ones are less than the head and the packet."""
STEP: Final = 64 * 1024  # bytes to compress before other requests get their turn: under a millisecond
LEVEL: Final = 1  # the fastest level, which already saves most
MAX_RATIO: Final = 0.9  # maximum compressed share of the first step; else the body is sent plain, as for random numbers
_ACCEPTED: Final = b"accept-encoding"
_LENGTH: Final = b"content-length"
_ENCODING: Final = b"content-encoding"


class CompressionMiddleware:
    """ASGI middleware that compresses responses in one piece, and forwards streams unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        offers = [value for name, value in scope["headers"] if name == _ACCEPTED]
        await self._app(scope, receive, _CompressingSend(accepted_coding(b",".join(offers)) if offers else None, send))


class _CompressingSend:
    """An ASGI `send` that compresses with `coding`, None for no compression."""

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
        if (
            len(body) >= MIN_SIZE
            and not message.get("more_body")
            and not any(name == _ENCODING for name, _ in start["headers"])
        ):
            headers = [*start["headers"], (b"vary", b"Accept-Encoding")]
            if self._coding is not None and (smaller := await compress(body, self._coding)) is not None:
                headers = [header for header in headers if header[0] != _LENGTH]
                headers += [(_LENGTH, b"%d" % len(smaller)), (_ENCODING, self._coding)]
                message = {**message, "body": smaller}
            start = {**start, "headers": headers}
        await self._send(start)
        await self._send(message)


async def compress(body: bytes, coding: bytes) -> bytes | None:
    """Return the body in a coding of `CODINGS`, or None if its beginning hardly shrinks."""
    deflater = zlib.compressobj(LEVEL, wbits=CODINGS[coding])
    view, pieces = memoryview(body), list[bytes]()
    for begin in range(0, len(body), STEP):
        pieces.append(deflater.compress(view[begin : begin + STEP]))
        if not begin:
            pieces.append(deflater.flush(zlib.Z_SYNC_FLUSH))
            if sum(map(len, pieces)) > MAX_RATIO * min(STEP, len(body)):
                return None
        if begin + STEP < len(body):
            await asyncio.sleep(0)
    pieces.append(deflater.flush())
    return b"".join(pieces)


def accepted_coding(accepted: bytes) -> bytes | None:
    """Return the coding for a response to this Accept-Encoding, None for no coding. Pure.

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
