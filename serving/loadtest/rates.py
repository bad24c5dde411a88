"""Rates of requests over time: the shapes of a load. Pure.

A rate is a function of the seconds since the start of the load; it returns requests per second.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

Rate: TypeAlias = Callable[[float], float]
Shape = Literal["steady", "burst", "diurnal", "trace"]

BURSTS: Final = 3
"""Bursts of the shape `burst`; each takes the last quarter of its part of the load."""
BETWEEN_BURSTS: Final = 0.1
"""Rate between bursts, as a share of the rate in them."""
NIGHT: Final = 0.05
"""Rate of the shape `diurnal` at midnight, as a share of the rate at noon."""


def steady(rate: float) -> Rate:
    """Return a constant rate."""
    return lambda _: rate


def bursts(low: float, high: float, every: float, length: float) -> Rate:
    """Return the rate `low`, and `high` in the last `length` of each `every` seconds."""
    return lambda moment: high if moment % every >= every - length else low


def diurnal(low: float, high: float, seconds: float, days: float = 1.0) -> Rate:
    """Return the rate of `days` days in `seconds`: from `low` at midnight to `high` at noon and back, as a cosine."""
    return lambda moment: low + (high - low) * (1.0 - math.cos(2.0 * math.pi * days * moment / seconds)) / 2.0


def by_second(arrivals: Sequence[float]) -> Rate:
    """Return the number of arrivals (seconds) in each second."""
    counts = Counter(int(moment) for moment in arrivals)
    return lambda moment: float(counts[int(moment)])


def replay(arrivals: Sequence[float], seconds: float, rate: float) -> list[float]:
    """Return the first arrivals of a recording, scaled to `rate` per second on average, for `seconds`.

    The recording begins at 0 and is in ascending order. One that is too short ends early.
    """
    count = max(2, math.ceil(rate * seconds))
    first = arrivals[:count]
    if not first:
        return []
    factor = (seconds / first[-1] if first[-1] else 1.0) * (len(first) / count)
    return [moment * factor for moment in first if moment * factor < seconds]


def make_rate(shape: Shape, rate: float, seconds: float, recorded: Sequence[float] = ()) -> Rate:
    """Return the rate of a load of `seconds`.

    `rate` is constant with the shape `steady`, the highest rate with `burst` and `diurnal`, and the average rate with
    `trace`, which replays the arrivals `recorded`.
    """
    if shape == "steady":
        return steady(rate)
    if shape == "burst":
        return bursts(BETWEEN_BURSTS * rate, rate, seconds / BURSTS, seconds / BURSTS / 4)
    if shape == "diurnal":
        return diurnal(NIGHT * rate, rate, seconds)
    return by_second(replay(recorded, seconds, rate))
