"""Bodies in gzip: read piece by piece, so that neither memory nor the event loop is taken by what they inflate to."""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from serving.server.errors import BadRequest, TooLarge
from serving.server.limits import BodyBudget

GZIP: Final = frozenset({b"gzip", b"x-gzip"})
"""Names of the one coding that is read (RFC 9110, 8.4.1.3)."""
STEP: Final = 16 * 1024  # bytes that are given to zlib at once; it copies what it does not take
PIECE: Final = 128 * 1024  # bytes that are inflated between two looks at other requests: under a millisecond
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS  # zlib's word for "with a gzip header and its check sum"


async def inflated(content: bytes, budget: BodyBudget, limit: int) -> tuple[bytes, int]:
    """What `content` inflates to, at most `limit` bytes, all of them lent by `budget`.

    It is one gzip member. Raises BadRequest, Overloaded, TooLarge; then nothing is lent.
    """
    inflating = _Inflating(content)
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
    """A gzip member on its way."""

    def __init__(self, content: bytes) -> None:
        self._inflater = zlib.decompressobj(_GZIP_WINDOW)
        self._rest = memoryview(content)
        self._more = False  # whether there is output that the last piece had no room for

    @property
    def done(self) -> bool:
        """Whether all was inflated. Raises BadRequest when something is left over."""
        if self._inflater.eof and (self._inflater.unused_data or self._rest):
            raise BadRequest("bytes are left over behind the gzip body")
        return self._inflater.eof

    def next_piece(self) -> bytes:
        """At most `PIECE` bytes, perhaps none. Raises BadRequest."""
        given: bytes | memoryview = self._inflater.unconsumed_tail
        if not given and not self._more:
            given, self._rest = self._rest[:STEP], self._rest[STEP:]
            if not given:
                raise BadRequest("the gzip body is cut off")
        try:
            piece = self._inflater.decompress(given, PIECE)
        except zlib.error as error:
            raise BadRequest("the body is no gzip") from error
        self._more = len(piece) == PIECE
        return piece
