"""Limit the memory of all request bodies: their total size is bounded, and one large body is parsed at a time.

A body of MAX_BODY bytes of empty objects takes 100 MiB while it is parsed. Thirty of them at once took more than a
gigabyte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from starlette.requests import Request

from serving.control_api.body import MAX_BODY, QUICK, read
from serving.control_api.status import TooManyRequests

Parsed = TypeVar("Parsed")

ROOM: Final = 10 * MAX_BODY
"""Maximum total bytes of bodies that are being read or wait to be parsed."""
RETRY_AFTER: Final = 1.0  # s


class Bodies:
    """Read and parse bodies in one event loop. Bodies of at most QUICK bytes are never refused because of others."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._taken = 0
        self._turn = asyncio.Lock()

    async def read(self, request: Request, parse: Callable[[bytes], Parsed]) -> Parsed:
        """Return the result of `parse`, which runs in a thread for large bodies.

        Raises TooManyRequests, and the errors of `read` and `parse`.
        """
        held = 0

        def take(size: int) -> None:
            nonlocal held
            if held + size > QUICK and self._taken + size > self._room:
                raise TooManyRequests("too many request bodies are being read: retry later", RETRY_AFTER)
            held += size
            self._taken += size

        try:
            body = await read(request, take)
            if len(body) <= QUICK:
                return parse(body)
            async with self._turn:
                return await asyncio.to_thread(parse, body)
        finally:
            self._taken -= held
