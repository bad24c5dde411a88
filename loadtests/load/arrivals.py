"""Schedules of requests: the times at which they are due, in seconds since the start, in ascending order."""

from __future__ import annotations

import math

import numpy as np

from autoscaler.scaling.table import FloatArray
from loadtests.simulate.trace import Trace
from serving.loadtest import rates
from serving.loadtest.rates import Rate

STEP = 0.005
"""Seconds between two samples of a changing rate, a small fraction of the time in which any of them changes."""


def steady(rate: float, seconds: float) -> FloatArray:
    """Return a schedule with a request every 1/rate seconds."""
    return following(rates.steady(rate), seconds)


def bursts(low: float, high: float, seconds: float, every: float, length: float) -> FloatArray:
    """Return a schedule of `low` requests per second, and of `high` in the last `length` of each `every` seconds."""
    return following(rates.bursts(low, high, every, length), seconds)


def diurnal(low: float, high: float, seconds: float, days: float = 1.0) -> FloatArray:
    """Return a schedule of `days` days in `seconds`: from `low` requests per second at midnight to `high` at noon."""
    return following(rates.diurnal(low, high, seconds, days), seconds)


def replay(trace: Trace, seconds: float, rate: float) -> FloatArray:
    """Return the first requests of a trace, scaled to `rate` requests per second on average, for `seconds`."""
    return np.array(rates.replay(trace.arrivals.tolist(), seconds, rate))


def following(rate: Rate, seconds: float) -> FloatArray:
    """Return the schedule of a rate: the n-th request is due when the integral of the rate reaches n."""
    moments = np.arange(0.0, seconds, STEP)
    asked = np.concatenate([[0.0], np.cumsum([rate(moment) for moment in moments.tolist()]) * STEP])
    numbers = np.arange(math.ceil(round(float(asked[-1]), 6)))
    due: FloatArray = np.interp(numbers, asked, np.append(moments, seconds))
    return due
