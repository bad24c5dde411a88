"""What a trace asks of a cluster: how long each request takes, how long each replica takes to start.

A request takes `CONTEXT_TOKEN` seconds for each token that it brings and `GENERATED_TOKEN` for each that is generated,
however many others its replica works on: up to `slots` of them.
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
"""Requests at once on one replica: those that a benchmark of these traces takes."""
USUAL_SLOTS = 8
"""The same for other traces."""


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
        """Slot-seconds that all requests together take."""
        return float(self.service.sum())


def workload_of(
    trace: Trace, start: float, *, slots: int | None = None, spread: float = 0.0, seed: int = 1
) -> Workload:
    """The trace on replicas that take `start` seconds to become ready."""
    service = np.maximum(LEAST, CONTEXT_TOKEN * trace.context + GENERATED_TOKEN * trace.generated)
    service = service * factors(np.random.default_rng([seed, 0]), spread, len(service))
    return Workload(
        trace.name, trace.arrivals, service, slots or SLOTS.get(trace.name, USUAL_SLOTS), start, spread, seed
    )


def factors(generator: np.random.Generator, spread: float, count: int) -> FloatArray:
    """`count` lognormal numbers of mean 1 and coefficient of variation `spread`."""
    if spread <= 0.0:
        return np.ones(count)
    variance = math.log1p(spread**2)
    return generator.lognormal(-variance / 2, math.sqrt(variance), count)
