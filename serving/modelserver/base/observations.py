"""Numbers counted by upper bound."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Observations:
    """Numbers counted by upper bound, and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count one more."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def counts(self) -> Sequence[int]:
        """Up to each bound but above the one before, at last above all."""
        return self._counts

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self._counts)

    @property
    def sum(self) -> float:
        """Of all values."""
        return self._sum
