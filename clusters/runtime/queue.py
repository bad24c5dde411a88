"""A work queue of keys: each key at most once in the queue and at most once at work, with capped exponential back-off.

The semantics are those of client-go's `workqueue` (dirty and processing sets, exponential failure rate limiter).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable
from typing import Generic, TypeVar

from clusters.base.backoff import Backoff

K = TypeVar("K", bound=Hashable)

FIRST_DELAY = 0.02  # s, after the first failure
LARGEST_DELAY = 30.0  # s; client-go has 1000 s, too long for a person who waits for a fixed cause to clear


class WorkQueue(Generic[K]):
    """Keys to work on, in order of arrival.

    A key added while it is worked on is handed out again when that work is `done`.
    """

    def __init__(self, first_delay: float = FIRST_DELAY, largest_delay: float = LARGEST_DELAY) -> None:
        self._backoff = Backoff(first_delay, largest_delay, jitter=(0.9, 1.1))
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._dirty: set[K] = set()
        self._working: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def add(self, key: K) -> None:
        """Hand `key` out as soon as a worker is free."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._ready.put_nowait(key)

    def add_after(self, key: K, delay: float) -> None:
        """Hand `key` out after `delay` seconds; of several timers of a key the earliest counts."""
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
        """The key failed: hand it out again after `delay` seconds, else after its back-off, which doubles with each
        call. Returns the delay.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        if delay is None:
            delay = self._backoff.delay(failures, random.random)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure starts at the first delay again."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How often the key failed in a row."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key; call `done` when the work on it ended, whatever its outcome."""
        key = await self._ready.get()
        self._dirty.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """The work on `key` ended; if it was added meanwhile it is handed out again."""
        self._working.discard(key)
        if key in self._dirty:
            self._ready.put_nowait(key)

    def __len__(self) -> int:
        return len(self._dirty)

    def _fire(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)
