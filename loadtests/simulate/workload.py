"""The workload of a trace: the service time of each request, and the start time of replicas.

A request takes `CONTEXT_TOKEN` seconds per input token and `GENERATED_TOKEN` per generated token, independent of the
other requests in its replica, up to `slots` of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autoscaler.scaling.table import FloatArray
from loadtests.simulate.trace import Trace

CONTEXT_TOKEN = 0.25e-3
"""Seconds."""
GENERATED_TOKEN = 25e-3
"""Seconds."""
LEAST = 1e-3
"""Seconds of a request without tokens."""
SLOTS = {"code": 4, "conv": 8}
"""Concurrent requests per replica, as in benchmarks of these traces."""
USUAL_SLOTS = 8
"""Concurrent requests per replica for other traces."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests by arrival: seconds since the first, and seconds of service; `start` seconds until a replica is ready.

    `spread` is the coefficient of variation of service and start times, lognormal around their means.
    """

    name: str
    arrivals: FloatArray
    service: FloatArray
    slots: int
    start: float
    spread: float = 0.0
    seed: int = 1

    @property
    def work(self) -> float:
        """Slot-seconds of all requests together."""
        return float(self.service.sum())


def workload_of(
    trace: Trace, start: float, *, slots: int | None = None, spread: float = 0.0, seed: int = 1
) -> Workload:
    """Return the workload of a trace on replicas that take `start` seconds to become ready."""
    service = np.maximum(LEAST, CONTEXT_TOKEN * trace.context + GENERATED_TOKEN * trace.generated)
    service = service * factors(np.random.default_rng([seed, 0]), spread, len(service))
    return Workload(
        trace.name, trace.arrivals, service, slots or SLOTS.get(trace.name, USUAL_SLOTS), start, spread, seed
    )


def factors(generator: np.random.Generator, spread: float, count: int) -> FloatArray:
    """Return `count` lognormal numbers of mean 1 and coefficient of variation `spread`."""
    if spread <= 0.0:
        return np.ones(count)
    variance = math.log1p(spread**2)
    return generator.lognormal(-variance / 2, math.sqrt(variance), count)
