"""All bodies at once: so many bytes of them are held, and one large one is parsed at a time.

A body of MAX_BODY bytes whose values are empty objects takes 100 MiB while it is looked at: thirty together took more
than a gigabyte, before each was refused.
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
"""Bytes of all bodies that are being read, or wait for their turn."""
RETRY_AFTER: Final = 1.0  # s


class Bodies:
    """Reads and parses bodies, from one event loop. Those of at most QUICK bytes are never refused for others."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._taken = 0
        self._turn = asyncio.Lock()

    async def read(self, request: Request, parse: Callable[[bytes], Parsed]) -> Parsed:
        """What `parse` makes of the body: in a thread when it is large. Raises TooManyRequests, and as both do."""
        held = 0

        def take(size: int) -> None:
            nonlocal held
            if held + size > QUICK and self._taken + size > self._room:
                raise TooManyRequests("bodies of other requests are being read: send it again later", RETRY_AFTER)
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
