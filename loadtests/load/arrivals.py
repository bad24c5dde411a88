"""Schedules of requests: the times at which they are due, in seconds since the start, in ascending order."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from autoscaler.scaling.table import FloatArray
from loadtests.simulate.trace import Trace

STEP = 0.005
"""Seconds between two samples of a changing rate, a small fraction of the time in which any of them changes."""

Rate = Callable[[FloatArray], FloatArray]
"""Return the rate in requests per second at each of these times."""


def steady(rate: float, seconds: float) -> FloatArray:
    """Return a schedule with a request every 1/rate seconds."""
    return following(lambda moments: np.full(len(moments), rate), seconds)


def bursts(low: float, high: float, seconds: float, every: float, length: float) -> FloatArray:
    """Return a schedule of `low` requests per second, and of `high` in the last `length` of each `every` seconds."""
    return following(lambda moments: np.where(moments % every >= every - length, high, low), seconds)


def diurnal(low: float, high: float, seconds: float, days: float = 1.0) -> FloatArray:
    """Return a schedule of `days` days in `seconds`: from `low` requests per second at midnight to `high` at noon and
    back, as a cosine.
    """

    def rate(moments: FloatArray) -> FloatArray:
        return low + (high - low) * (1.0 - np.cos(2.0 * math.pi * days * moments / seconds)) / 2.0

    return following(rate, seconds)


def replay(trace: Trace, seconds: float, rate: float) -> FloatArray:
    """Return the first requests of a trace, scaled to `rate` requests per second on average, for `seconds`."""
    count = max(2, math.ceil(rate * seconds))
    first = trace.arrivals[:count]
    fitted = first * (seconds / first[-1] if first[-1] else 1.0) * (len(first) / count)
    return fitted[fitted < seconds]


def following(rate: Rate, seconds: float) -> FloatArray:
    """Return the schedule of a rate: the n-th request is due when the integral of the rate reaches n."""
    moments = np.arange(0.0, seconds, STEP)
    asked = np.concatenate([[0.0], np.cumsum(rate(moments)) * STEP])
    numbers = np.arange(math.ceil(round(float(asked[-1]), 6)))
    due: FloatArray = np.interp(numbers, asked, np.append(moments, seconds))
    return due
