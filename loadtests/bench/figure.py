"""A measured value with its aim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A value with its aim: the largest acceptable value, or the smallest if `least` is set; None without an aim."""

    what: str
    value: float
    unit: str
    aim: float | None = None
    least: bool = False

    @property
    def missed(self) -> bool:
        """Whether the aim is missed."""
        if self.aim is None:
            return False
        return self.value < self.aim if self.least else self.value > self.aim

    def __str__(self) -> str:
        verdict = ""
        if self.aim is not None:
            sign = "≥" if self.least else "≤"
            verdict = f"aim {sign} {self.aim:g} {self.unit}  {'MISSED' if self.missed else 'ok'}"
        return f"{self.what:<58} {self.value:>9.3f} {self.unit:<6} {verdict}"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the quantile of `values`, one of them; `share` is from 0 to 1."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
