"""Decompress bodies in pieces, so that they exhaust neither the memory nor the event loop."""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from clusters.base.sizes import format_size
from serving.modelserver.base.errors import ContentTooLarge, InvalidRequest
from serving.modelserver.base.limits import BodyBudget

GZIP: Final = b"gzip"
DEFLATE: Final = b"deflate"
GZIPS: Final = (GZIP, b"x-gzip")
CODINGS: Final = {**dict.fromkeys(GZIPS, 16 + zlib.MAX_WBITS), DEFLATE: zlib.MAX_WBITS}
"""Content codings (RFC 9110, 8.4.1) and their `wbits` for zlib; deflate is the zlib format with a checksum."""
MAX_MEMBERS: Final = 10_000
"""Maximum number of members of a gzip body. Even an empty member costs time; block tools write one per 64 KiB."""
INPUT_STEP: Final = 16 * 1024  # compressed bytes per call of zlib, which copies the rest that it does not consume
OUTPUT_STEP: Final = 128 * 1024  # bytes to decompress before other requests get their turn: under a millisecond


async def decompress(content: bytes, budget: BodyBudget, limit: int, coding: bytes = GZIP) -> tuple[bytes, int]:
    """Return the decompressed `content`, at most `limit` bytes, and its size, which is taken from `budget`.

    The content is one zlib stream, or a sequence of gzip members (RFC 1952, 2.2).
    Raises InvalidRequest, Overloaded, ContentTooLarge; then nothing is taken from the budget.
    """
    decompressor = _Decompressor(content, coding)
    pieces: list[bytes] = []
    lent = 0
    try:
        while not decompressor.done:
            piece = decompressor.next_piece()
            budget.borrow(len(piece))
            lent += len(piece)
            pieces.append(piece)
            if lent > limit:
                raise ContentTooLarge(
                    f"the request is too large: at most {format_size(limit)} are allowed after decompression"
                )
            await asyncio.sleep(0)
    except BaseException:
        budget.give_back(lent)
        raise
    return b"".join(pieces), lent


class _Decompressor:
    """An incremental decompressor of one zlib stream or of gzip members."""

    def __init__(self, content: bytes, coding: bytes) -> None:
        self._coding = coding
        self._inflater = zlib.decompressobj(CODINGS[coding])
        self._members = 1
        self._behind = b""  # bytes behind the previous member in its last step
        self._rest = memoryview(content)
        self._more = False  # whether zlib has output that did not fit into the last piece

    @property
    def done(self) -> bool:
        """Return whether all of the content was decompressed."""
        return self._inflater.eof and not self._inflater.unused_data and not self._rest

    def next_piece(self) -> bytes:
        """Return at most `OUTPUT_STEP` bytes, possibly none. Raises InvalidRequest."""
        if self._inflater.eof:
            if self._coding not in GZIPS:
                raise InvalidRequest(f"extra bytes after the end of the {self._coding.decode()} body")
            if self._members == MAX_MEMBERS:
                raise InvalidRequest(f"the body has more than {MAX_MEMBERS} gzip members: compress it as one member")
            self._members += 1
            self._behind = self._inflater.unused_data
            self._inflater = zlib.decompressobj(CODINGS[self._coding])
            self._more = False
        given: bytes | memoryview = self._inflater.unconsumed_tail
        if not given:
            given, self._behind = self._behind, b""
        if not given and not self._more:
            given, self._rest = self._rest[:INPUT_STEP], self._rest[INPUT_STEP:]
            if not given:
                raise InvalidRequest(f"the {self._coding.decode()} body is truncated")
        try:
            piece = self._inflater.decompress(given, OUTPUT_STEP)
        except zlib.error as error:
            if self._members > 1:
                raise InvalidRequest(
                    f"the bytes after gzip member {self._members - 1} are not a gzip member"
                ) from error
            raise InvalidRequest(f"the body is not {self._coding.decode()}") from error
        self._more = len(piece) == OUTPUT_STEP
        return piece
