"""Time as a constructor argument: the loops read a `Clock`, tests step one by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Wall time for what people read, monotonic seconds for what is measured, and a sleep on the same clock."""

    def now(self) -> datetime:
        """Wall time, aware, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of `monotonic`."""
        ...


class SteadyClock:
    """Wall time that does not jump when the machine's clock is set: that of the making, moved by the seconds since.

    For waits whose begin stands in an object as a moment. After the machine's clock was set its moments are as far off
    as that clock was: make another one between two waits (`serving/reconciler/times.py`).
    """

    def __init__(self, clock: Clock, elapsed: Callable[[], float]) -> None:
        """`elapsed`: seconds that pass while the machine sleeps, too, so that a night is not taken for nothing."""
        self._clock = clock
        self._elapsed = elapsed
        self._start = clock.now() - timedelta(seconds=elapsed())

    def now(self) -> datetime:
        """Wall time, aware, UTC."""
        return self._start + timedelta(seconds=self._elapsed())

    def monotonic(self) -> float:
        """The clock's own."""
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """The clock's own."""
        await self._clock.sleep(seconds)


def seconds_of_machine() -> float:
    """Seconds since the machine was started, those in which it slept among them (Linux' CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Wall time, aware, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never jump (CLOCK_MONOTONIC, the same in all processes of the machine)."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        await asyncio.sleep(seconds)
