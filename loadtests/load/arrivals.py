"""When requests are due: schedules of the shapes that load has. Pure; seconds since the load's beginning, in order."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from autoscaler.scaling.table import FloatArray
from loadtests.simulate.trace import Trace

STEP = 0.005
"""Seconds between two looks at a rate that changes: some hundredth of what any of them needs to change."""

Rate = Callable[[FloatArray], FloatArray]
"""Requests a second at each of these moments."""


def steady(rate: float, seconds: float) -> FloatArray:
    """A request every 1/rate seconds."""
    return following(lambda moments: np.full(len(moments), rate), seconds)


def bursts(low: float, high: float, seconds: float, every: float, length: float) -> FloatArray:
    """`low` requests a second, and `high` for the last `length` of each `every` seconds."""
    return following(lambda moments: np.where(moments % every >= every - length, high, low), seconds)


def diurnal(low: float, high: float, seconds: float, days: float = 1.0) -> FloatArray:
    """`days` days in `seconds`: from `low` requests a second at midnight to `high` at noon and back, as a cosine."""

    def rate(moments: FloatArray) -> FloatArray:
        return low + (high - low) * (1.0 - np.cos(2.0 * math.pi * days * moments / seconds)) / 2.0

    return following(rate, seconds)


def replay(trace: Trace, seconds: float, rate: float) -> FloatArray:
    """The first requests of a trace, played so fast that `rate` a second come on average, for `seconds`."""
    count = max(2, math.ceil(rate * seconds))
    first = trace.arrivals[:count]
    fitted = first * (seconds / first[-1] if first[-1] else 1.0) * (len(first) / count)
    return fitted[fitted < seconds]


def following(rate: Rate, seconds: float) -> FloatArray:
    """The n-th request is due when the integral of the rate has reached n."""
    moments = np.arange(0.0, seconds, STEP)
    asked = np.concatenate([[0.0], np.cumsum(rate(moments)) * STEP])
    numbers = np.arange(math.ceil(round(float(asked[-1]), 6)))
    due: FloatArray = np.interp(numbers, asked, np.append(moments, seconds))
    return due
