"""Inflate compressed bodies piece by piece, so that they take neither all memory nor the event loop."""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from serving.server.errors import BadRequest, TooLarge
from serving.server.limits import BodyBudget

GZIP: Final = b"gzip"
CODINGS: Final = {GZIP: 16 + zlib.MAX_WBITS, b"x-gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
"""Codings (RFC 9110, 8.4.1) and their windows in zlib's terms; deflate is zlib's own format with a check sum."""
STEP: Final = 16 * 1024  # bytes that are given to zlib at once; it copies what it does not take
PIECE: Final = 128 * 1024  # bytes that are inflated between two looks at other requests: under a millisecond


async def inflated(content: bytes, budget: BodyBudget, limit: int, coding: bytes = GZIP) -> tuple[bytes, int]:
    """Return what `content` inflates to, at most `limit` bytes, and how many of them `budget` lends: all.

    The content is one gzip member, or one zlib stream. Raises BadRequest, Overloaded, TooLarge; then nothing is lent.
    """
    inflating = _Inflating(content, coding)
    pieces: list[bytes] = []
    lent = 0
    try:
        while not inflating.done:
            piece = inflating.next_piece()
            budget.borrow(len(piece))
            lent += len(piece)
            pieces.append(piece)
            if lent > limit:
                raise TooLarge(f"a request has at most {limit} bytes, those that it is inflated to included")
            await asyncio.sleep(0)
    except BaseException:
        budget.give_back(lent)
        raise
    return b"".join(pieces), lent


class _Inflating:
    """A gzip member or zlib stream on its way."""

    def __init__(self, content: bytes, coding: bytes) -> None:
        self._coding = coding.decode()
        self._inflater = zlib.decompressobj(CODINGS[coding])
        self._rest = memoryview(content)
        self._more = False  # whether there is output that the last piece had no room for

    @property
    def done(self) -> bool:
        """Whether all was inflated. Raises BadRequest when something is left over."""
        if self._inflater.eof and (self._inflater.unused_data or self._rest):
            raise BadRequest(f"bytes are left over behind the {self._coding} body")
        return self._inflater.eof

    def next_piece(self) -> bytes:
        """At most `PIECE` bytes, perhaps none. Raises BadRequest."""
        given: bytes | memoryview = self._inflater.unconsumed_tail
        if not given and not self._more:
            given, self._rest = self._rest[:STEP], self._rest[STEP:]
            if not given:
                raise BadRequest(f"the {self._coding} body is cut off")
        try:
            piece = self._inflater.decompress(given, PIECE)
        except zlib.error as error:
            raise BadRequest(f"the body is no {self._coding}") from error
        self._more = len(piece) == PIECE
        return piece
