"""From a thread that makes to a task that takes: in order, and never more than a few ahead."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final, Generic, TypeVar

from serving.engines.base.errors import Cancelled

T = TypeVar("T")

AHEAD: Final = 16  # parts that are made and not taken: a caller that reads slowly stops the model, not the memory


class Handover(Generic[T]):
    """An asynchronous iterator over what a thread puts in, until its end. Taken from by one task of `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ahead: int = AHEAD) -> None:
        self._loop = loop
        self._room = threading.Semaphore(ahead)
        self._parts: asyncio.Queue[T | None] = asyncio.Queue()
        self._ended = False
        self.waited = 0.0
        """Seconds that the thread has waited for the task to take a part."""

    def put(self, part: T) -> None:
        """Of the thread: blocks until there is room. Raises Cancelled when nobody takes any more."""
        if not self._room.acquire(blocking=False):
            start = time.monotonic()
            self._room.acquire()
            self.waited += time.monotonic() - start
        if self._ended:
            self._room.release()  # of whoever tries again
            raise Cancelled("nobody waits for the rest")
        self._loop.call_soon_threadsafe(self._parts.put_nowait, part)

    def end(self) -> None:
        """Of the loop: nothing follows; a thread that waits for room, or puts more in, is told."""
        if not self._ended:
            self._ended = True
            self._room.release()
            self._parts.put_nowait(None)

    def __aiter__(self) -> Handover[T]:
        """Itself."""
        return self

    async def __anext__(self) -> T:
        """The next part."""
        part = await self._parts.get()
        if part is None:
            raise StopAsyncIteration
        self._room.release()
        return part
