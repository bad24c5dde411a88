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
    """The slots and the queue of one model. Not thread-safe: only the event loop may use it.

    A request takes `count` slots, mostly one. All of them are taken at once, and none by a request behind it.
    """

    def __init__(self, slots: int, queue: int, stats: Stats) -> None:
        self._free = self._slots = slots
        self._queue_limit = queue
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._stats = stats

    def resize(self, slots: int) -> None:
        """Have exactly this many slots from now on; call it before the first request."""
        self._free, self._slots = slots, slots

    def raise_to(self, slots: int) -> None:
        """Have at least this many slots from now on."""
        self._free += max(0, slots - self._slots)
        self._slots = max(slots, self._slots)

    def try_acquire(self, count: int = 1) -> bool:
        """Take slots and return True, or return False when they are not free. Free them with `release`."""
        if self._free < count or self._waiting:
            return False
        self._free -= count
        self._stats.requests += 1
        self._stats.change(active=count)
        return True

    def enqueue(self, count: int = 1) -> asyncio.Future[None]:
        """Join the queue; the returned future completes when the request has its slots.

        A caller that stops waiting must call `abandon`. Raises Overloaded when the queue is full.
        """
        if len(self._waiting) >= self._queue_limit:
            raise Overloaded(QUEUE_FULL)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((place, count))
        self._stats.requests += 1
        self._stats.change(queued=count)
        return place

    def abandon(self, place: asyncio.Future[None], count: int = 1) -> None:
        """Leave the queue, or release the slots if `place` has already received them."""
        if place.done() and not place.cancelled() and place.exception() is None:
            self.release(count)
            return
        with contextlib.suppress(ValueError):  # `release` may have removed it already
            self._waiting.remove((place, count))
        self._stats.change(queued=-count)
        self._serve_queue()  # those behind it may take fewer slots

    def release(self, count: int = 1) -> None:
        """Free slots, and give them to the first requests in the queue."""
        self._free += count
        self._stats.change(active=-count)
        if self._waiting:
            self._serve_queue()

    def _serve_queue(self) -> None:
        while self._waiting:
            place, count = self._waiting[0]
            if not place.done():  # a place that is done has failed, and its owner will call `abandon`
                if self._free < count:
                    return
                self._free -= count
                self._stats.change(active=count, queued=-count)
                place.set_result(None)
            self._waiting.popleft()


def fail_future(future: asyncio.Future[Any], error: ServingError) -> None:
    """Set `error` on a future that is not done yet."""
    if not future.done():
        future.set_exception(error)
