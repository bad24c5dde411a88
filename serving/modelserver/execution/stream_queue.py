"""A bounded queue from a worker thread to a task of the event loop, for streamed results."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final, Generic, TypeVar

from serving.engines.base.errors import Cancelled

T = TypeVar("T")

MAX_WAITING: Final = 16  # items in the queue; a client that reads slowly stops the model instead of filling memory


class StreamQueue(Generic[T]):
    """An asynchronous iterator over the items that a thread puts. Only one task of `loop` may iterate over it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most_waiting: int = MAX_WAITING) -> None:
        self._loop = loop
        self._room = threading.Semaphore(most_waiting)
        self._items: asyncio.Queue[T | None] = asyncio.Queue()
        self._closed = False
        self.blocked_seconds = 0.0
        """How long `put` has blocked the thread so far."""

    def put(self, item: T) -> None:
        """Add an item; blocks the calling thread while the queue is full. Raises Cancelled when the queue is closed."""
        if not self._room.acquire(blocking=False):
            start = time.monotonic()
            self._room.acquire()
            self.blocked_seconds += time.monotonic() - start
        if self._closed:
            self._room.release()  # for the next call of `put`
            raise Cancelled("the stream is closed: its client no longer waits")
        self._loop.call_soon_threadsafe(self._items.put_nowait, item)

    def close(self) -> None:
        """End the iteration, and make `put` raise in a thread that blocks now or calls it later. Called by the loop."""
        if not self._closed:
            self._closed = True
            self._room.release()
            self._items.put_nowait(None)

    def __aiter__(self) -> StreamQueue[T]:
        """Return the queue itself."""
        return self

    async def __anext__(self) -> T:
        """Return the next item, as soon as there is one."""
        item = await self._items.get()
        if item is None:
            raise StopAsyncIteration
        self._room.release()
        return item
