"""A work queue of keys with exponential back-off.

A key is in the queue at most once, and at most one worker has it. The semantics are those of client-go's `workqueue`
(dirty and processing sets, exponential failure rate limiter).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable
from typing import Generic, TypeVar

from clusters.base.backoff import Backoff

K = TypeVar("K", bound=Hashable)

FIRST_DELAY = 0.02  # s, after the first failure
LARGEST_DELAY = 30.0  # s; client-go has 1000 s, too long for a user who has removed the cause


class WorkQueue(Generic[K]):
    """A queue of keys in order of arrival. A key that is added while a worker has it is queued again after `done`."""

    def __init__(self, first_delay: float = FIRST_DELAY, largest_delay: float = LARGEST_DELAY) -> None:
        self._backoff = Backoff(first_delay, largest_delay, jitter=(0.9, 1.1))
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._dirty: set[K] = set()
        self._working: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def add(self, key: K) -> None:
        """Enqueue `key`, unless it is queued already."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._ready.put_nowait(key)

    def add_after(self, key: K, delay: float) -> None:
        """Enqueue `key` after `delay` seconds; the earliest of several timers counts."""
        if delay <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + delay
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._fire, key)

    def retry(self, key: K, delay: float | None = None) -> float:
        """Requeue a failed key after `delay` seconds, by default its back-off, and return the delay."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        if delay is None:
            delay = self._backoff.delay(failures, random.random)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Reset the back-off of a key that succeeded."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return the number of consecutive failures of a key."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """Wait for the next key and return it. Call `done` after the work on it, whatever the outcome."""
        key = await self._ready.get()
        self._dirty.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """End the work on `key`; if it was added meanwhile, it is queued again."""
        self._working.discard(key)
        if key in self._dirty:
            self._ready.put_nowait(key)

    def __len__(self) -> int:
        return len(self._dirty)

    def _fire(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)
