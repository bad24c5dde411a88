"""What only a restart of a server mends, of all its models together: too much that hangs, or a lost accelerator."""

from __future__ import annotations

import asyncio
from typing import Final

MOST_THREADS: Final = 16  # until there is no sense in more of them
_SHARE: Final = 2  # the part of all bodies' memory that may hang is one half: large requests find none soon


class Hanging:
    """Threads that nobody waits for and that do not end, and the bodies that they work on, of `bodies` bytes at most.

    Used by the event loop.
    """

    def __init__(self, bodies: int) -> None:
        self._most_bytes = bodies // _SHARE
        self._threads = 0
        self._bytes = 0
        self.device_lost = asyncio.Event()
        """Set when no call on the accelerator can succeed in this process any more."""

    @property
    def too_much(self) -> bool:
        """Whether so much hangs that a restart is all that helps."""
        return self._threads >= MOST_THREADS or self._bytes > self._most_bytes

    def add(self, size: int) -> None:
        """One more thread hangs, with a body of so many bytes."""
        self._threads += 1
        self._bytes += size

    def remove(self, size: int) -> None:
        """It has ended after all."""
        self._threads -= 1
        self._bytes -= size
