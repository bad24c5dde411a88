"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta


class SteppedClock:
    """`sleep` returns when `step` has moved the time far enough."""

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """Wall time."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait for `step`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiter = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._elapsed + seconds, waiter))
        await waiter

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward, or back, as a person or NTP does: no time passes."""
        self._start += timedelta(seconds=seconds)

    def step(self, seconds: float) -> None:
        """Move the time and wake whom it concerns."""
        self._elapsed += seconds
        due = [waiter for at, waiter in self._sleepers if at <= self._elapsed]
        self._sleepers = [(at, waiter) for at, waiter in self._sleepers if at > self._elapsed]
        for waiter in due:
            if not waiter.done():
                waiter.set_result(None)
