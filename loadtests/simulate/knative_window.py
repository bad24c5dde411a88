"""Averages as Knative's autoscaler takes them: one bucket a second, the mean over those written so far.

Knative: `pkg/autoscaler/aggregation/bucketing.go`. What is recorded within one second adds up. The mean is over the
seconds from the first record on, at most the window; seconds of silence since the last record count as if they were not
there; once the whole window is silent, there is no data, and the next record is a first one. Averages have six digits.
"""

from __future__ import annotations

from collections import deque

DIGITS = 6


class KnativeWindow:
    """The last `seconds` seconds."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._buckets: deque[tuple[int, float]] = deque()  # seconds with records, oldest first
        self._first = self._last = -1

    def record(self, now: float, value: float) -> None:
        """So much was in use in the second of `now`."""
        second = int(now)
        if not self._buckets or second - self._last >= self._seconds:
            self._buckets.clear()
            self._first = second
        if self._buckets and self._last == second:
            value += self._buckets.pop()[1]
        self._buckets.append((second, value))
        self._last = second

    def average(self, now: float) -> float | None:
        """The mean at `now`; None without data."""
        second = int(now)
        if not self._buckets or second - self._last >= self._seconds:
            return None
        while self._buckets[0][0] <= second - self._seconds:
            self._buckets.popleft()
        written = min(self._last - self._first + 1, self._seconds - (second - self._last))
        return round(sum(value for _, value in self._buckets) / written, DIGITS)
