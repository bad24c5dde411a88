"""The text of a progress line for a transfer: bytes, rate, and the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable

from clusters.base.sizes import human_bytes

SHORTEST = 1.0  # s of measurement before a rate is shown


class TransferMeter:
    """Measures the transfer of the artifact `name`, one phase after the other, by the clock `monotonic`."""

    def __init__(self, name: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._monotonic = monotonic
        self._phase = ""
        self._began = 0.0
        self._before = 0

    def text(self, phase: str, done: int, total: int) -> str:
        """Return the text after `done` of `total` bytes.

        The first call of a phase begins its measurement, so bytes that an earlier command sent do not count.
        """
        now = self._monotonic()
        if phase != self._phase:
            self._phase, self._began, self._before = phase, now, done
        seconds, moved = now - self._began, done - self._before
        rate = moved / seconds if seconds >= SHORTEST else 0.0
        share = f" ({100 * done // total} %)" if total else ""
        text = f"{phase} {self._name}: {human_bytes(done)} of {human_bytes(total)}{share}"
        if rate <= 0:
            return text
        return f"{text}, {human_bytes(round(rate))}/s, {time_left((total - done) / rate)} left"


def time_left(seconds: float) -> str:
    """Return a rounded duration: `45 s`, `3 min`, `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
