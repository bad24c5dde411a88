"""Clocks as constructor arguments: production code reads a `Clock`, and tests step one by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Wall time for display and records, monotonic seconds for intervals, and a sleep on the same clock."""

    def now(self) -> datetime:
        """Return the wall time in UTC, with a time zone."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` of `monotonic`."""
        ...


class SteadyClock:
    """Wall time that does not jump when the machine's clock is set: the time of construction plus the seconds since.

    It serves waits whose start is a timestamp in an object. After the machine's clock was set, its times keep the old
    error: make a new SteadyClock between two waits (`serving/reconciler/clocks.py`).
    """

    def __init__(self, clock: Clock, elapsed: Callable[[], float]) -> None:
        """`elapsed` returns seconds that also pass while the machine is suspended, so that a night is counted."""
        self._clock = clock
        self._elapsed = elapsed
        self._start = clock.now() - timedelta(seconds=elapsed())

    def now(self) -> datetime:
        """Return the wall time in UTC, with a time zone."""
        return self._start + timedelta(seconds=self._elapsed())

    def monotonic(self) -> float:
        """Return the seconds of the underlying clock."""
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the underlying clock."""
        await self._clock.sleep(seconds)


def seconds_of_machine() -> float:
    """Return the seconds since boot, including suspended time (CLOCK_BOOTTIME of Linux)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        """Return the wall time in UTC, with a time zone."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never jump (CLOCK_MONOTONIC, equal in all processes of the machine)."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        await asyncio.sleep(seconds)
