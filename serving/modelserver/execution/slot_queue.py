"""Limit concurrent inferences of a model: a number of slots, then a bounded first-come-first-served queue, then 429."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import Any, Final

from serving.modelserver.base.errors import Overloaded, ServingError
from serving.modelserver.base.stats import Stats

QUEUE_FULL: Final = "the model is busy and its queue is full: try again"


class SlotQueue:
    """The slots and the queue of one model. Not thread-safe: only the event loop may use it."""

    def __init__(self, slots: int, queue: int, stats: Stats) -> None:
        self._free = self._slots = slots
        self._queue_limit = queue
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._stats = stats

    def resize(self, slots: int) -> None:
        """Have exactly this many slots from now on; call it before the first request."""
        self._free, self._slots = slots, slots

    def raise_to(self, slots: int) -> None:
        """Have at least this many slots from now on."""
        self._free += max(0, slots - self._slots)
        self._slots = max(slots, self._slots)

    def try_acquire(self) -> bool:
        """Take a slot and return True, or return False when none is free. Free the slot with `release`."""
        if not self._free:
            return False
        self._free -= 1
        self._stats.requests += 1
        self._stats.change(active=1)
        return True

    def enqueue(self) -> asyncio.Future[None]:
        """Join the queue; the returned future completes when the request has a slot.

        A caller that stops waiting must call `abandon`. Raises Overloaded when the queue is full.
        """
        if len(self._waiting) >= self._queue_limit:
            raise Overloaded(QUEUE_FULL)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._stats.requests += 1
        self._stats.change(queued=1)
        return place

    def abandon(self, place: asyncio.Future[None]) -> None:
        """Leave the queue, or release the slot if `place` has already received one."""
        if place.done() and not place.cancelled() and place.exception() is None:
            self.release()
            return
        with contextlib.suppress(ValueError):  # `release` may have removed it already
            self._waiting.remove(place)
        self._stats.change(queued=-1)

    def release(self) -> None:
        """Give the slot to the first request in the queue, or free it when the queue is empty."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():  # a place that is done has failed, and its owner will call `abandon`
                self._stats.change(queued=-1)
                place.set_result(None)
                return
        self._free += 1
        self._stats.change(active=-1)


def fail_future(future: asyncio.Future[Any], error: ServingError) -> None:
    """Set `error` on a future that is not done yet."""
    if not future.done():
        future.set_exception(error)
