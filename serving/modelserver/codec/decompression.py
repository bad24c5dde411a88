"""Inflate compressed bodies piece by piece, so that they take neither all memory nor the event loop."""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from clusters.base.sizes import format_size
from serving.modelserver.base.errors import BadRequest, TooLarge
from serving.modelserver.base.limits import BodyBudget

GZIP: Final = b"gzip"
DEFLATE: Final = b"deflate"
GZIPS: Final = (GZIP, b"x-gzip")
CODINGS: Final = {**dict.fromkeys(GZIPS, 16 + zlib.MAX_WBITS), DEFLATE: zlib.MAX_WBITS}
"""Codings (RFC 9110, 8.4.1) and their windows in zlib's terms; deflate is zlib's own format with a check sum."""
MEMBERS: Final = 10_000
"""Members of a gzip body. Each costs time even when it is empty; tools that write blocks have one for 64 KiB."""
STEP: Final = 16 * 1024  # bytes that are given to zlib at once; it copies what it does not take
PIECE: Final = 128 * 1024  # bytes that are inflated between two looks at other requests: under a millisecond


async def decompress(content: bytes, budget: BodyBudget, limit: int, coding: bytes = GZIP) -> tuple[bytes, int]:
    """Return what `content` inflates to, at most `limit` bytes, and how many of them `budget` lends: all.

    The content is one zlib stream, or gzip members one behind another (RFC 1952, 2.2).
    Raises BadRequest, Overloaded, TooLarge; then nothing is lent.
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
                raise TooLarge(f"a request has at most {format_size(limit)}, those that it is inflated to included")
            await asyncio.sleep(0)
    except BaseException:
        budget.give_back(lent)
        raise
    return b"".join(pieces), lent


class _Inflating:
    """A body on its way, of one zlib stream or of gzip members."""

    def __init__(self, content: bytes, coding: bytes) -> None:
        self._coding = coding
        self._inflater = zlib.decompressobj(CODINGS[coding])
        self._members = 1
        self._behind = b""  # what came with the last step of the member before this one
        self._rest = memoryview(content)
        self._more = False  # whether there is output that the last piece had no room for

    @property
    def done(self) -> bool:
        """Whether all was inflated."""
        return self._inflater.eof and not self._inflater.unused_data and not self._rest

    def next_piece(self) -> bytes:
        """At most `PIECE` bytes, perhaps none. Raises BadRequest."""
        if self._inflater.eof:
            self._begin_member()
        given: bytes | memoryview = self._inflater.unconsumed_tail
        if not given:
            given, self._behind = self._behind, b""
        if not given and not self._more:
            given, self._rest = self._rest[:STEP], self._rest[STEP:]
            if not given:
                raise BadRequest(f"the {self._coding.decode()} body is cut off")
        try:
            piece = self._inflater.decompress(given, PIECE)
        except zlib.error as error:
            if self._members > 1:
                raise BadRequest(f"the bytes behind member {self._members - 1} are not a gzip member") from error
            raise BadRequest(f"the body is not {self._coding.decode()}") from error
        self._more = len(piece) == PIECE
        return piece

    def _begin_member(self) -> None:
        """Go on behind a member that ended. Raises BadRequest where nothing may follow, or too much did."""
        if self._coding not in GZIPS:
            raise BadRequest(f"bytes are left over behind the {self._coding.decode()} body")
        if self._members == MEMBERS:
            raise BadRequest(f"the body has more than {MEMBERS} gzip members: compress it as one")
        self._members += 1
        self._behind = self._inflater.unused_data
        self._inflater = zlib.decompressobj(CODINGS[self._coding])
        self._more = False
