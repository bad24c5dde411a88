"""Who may use the model now: so many slots, then a queue, first come first served, and beyond it 429."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any, Final

from serving.modelserver.base.errors import Overloaded, ServingError
from serving.modelserver.base.stats import Stats

FULL: Final = "the model is busy and its queue is full: try again"


class Admission:
    """Slots and queue of one model. Used by one event loop."""

    def __init__(self, slots: int, queue: int, stats: Stats) -> None:
        self._free = slots
        self._queue_limit = queue
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._stats = stats

    def try_enter(self) -> bool:
        """Take a slot if one is free; `leave` gives it back."""
        if not self._free:
            return False
        self._free -= 1
        self._stats.requests += 1
        self._stats.change(active=1)
        return True

    def join_queue(self) -> asyncio.Future[None]:
        """A place in the queue; the future is done when it has become a slot. Raises Overloaded.

        Whoever does not wait any more calls `leave_queue`.
        """
        if len(self._waiting) >= self._queue_limit:
            raise Overloaded(FULL)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._stats.requests += 1
        self._stats.change(queued=1)
        return place

    def leave_queue(self, place: asyncio.Future[None]) -> None:
        """Give up the place, or the slot that it has become."""
        if place.done() and not place.cancelled() and place.exception() is None:
            self.leave()
            return
        with contextlib.suppress(ValueError):  # `leave` may have passed over it already
            self._waiting.remove(place)
        self._stats.change(queued=-1)

    def leave(self) -> None:
        """The slot is free, for the first of the queue."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():  # else it has given up and will call `leave_queue`
                self._stats.change(queued=-1)
                place.set_result(None)
                return
        self._free += 1
        self._stats.change(active=-1)


def fail(waiter: asyncio.Future[Any], error: ServingError) -> None:
    """End somebody's waiting, unless it has ended."""
    if not waiter.done():
        waiter.set_exception(error)
