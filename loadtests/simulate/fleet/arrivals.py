"""Requests to a fleet of models: rates follow Zipf's law, and the gaps of each model are gamma-distributed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

BEFORE: Final = 1.0
"""Simulated time before the first counted request, as a multiple of the horizon.

Without it, a bursty stream would begin with a burst of all models.
"""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The total `rate` of all `models` in requests per second, and the coefficient of variation of a model's gaps.

    A `variation` of 1 is a Poisson stream.
    """

    models: int = 200
    zipf: float = 1.1
    rate: float = 1.0
    variation: float = 1.0


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests in order of time: seconds since the start, and the number of the model."""

    times: FloatArray
    models: IntArray
    horizon: float


def make_arrivals(traffic: Traffic, hours: float, seed: int) -> Arrivals:
    """Return all requests within `hours`."""
    source = np.random.default_rng(seed)
    weights = np.arange(1, traffic.models + 1) ** -traffic.zipf
    rates = traffic.rate * weights / weights.sum()
    horizon = hours * 3_600.0
    streams = [_stream(source, rate, traffic.variation, horizon) for rate in rates.tolist()]
    times = np.concatenate(streams)
    models = np.repeat(np.arange(traffic.models), [len(stream) for stream in streams])
    order = np.argsort(times, kind="stable")
    return Arrivals(times[order], models[order], horizon)


def _stream(source: np.random.Generator, rate: float, variation: float, horizon: float) -> FloatArray:
    shape = variation**-2
    number = int(rate * horizon * (1.0 + BEFORE) * 2.0 + 100.0)
    last, parts = -BEFORE * horizon, []
    while last < horizon:
        parts.append(last + np.cumsum(source.gamma(shape, 1.0 / (rate * shape), number)))
        last = float(parts[-1][-1])
    times = np.concatenate(parts)
    return times[(times >= 0.0) & (times < horizon)]
