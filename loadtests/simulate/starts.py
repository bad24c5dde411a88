"""The start time of each replica: a cold start, or the claim of a warm-pool member.

A pool has a fixed size; each claimed member is replaced at once, so `size` members are billed all the time, ready or
not. The first ones start with the trace.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from loadtests.simulate.workload import Workload, factors

DRAWN = 256
"""Start times drawn at once."""


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds until the replica is ready, and whether it was a cold start."""

    seconds: float
    cold: bool


class Starts:
    """The starts of a run, the same for every policy: the n-th start has the same duration in all of them.

    `initial`: seconds of the revision's first start at its deployment, before the trace.
    """

    def __init__(self, workload: Workload, pool: int = 0, claim: float = 3.0) -> None:
        self._mean, self._spread = workload.start, workload.spread
        self._generator = np.random.default_rng([workload.seed, 1])
        self._drawn: list[float] = []
        self.initial = self._next()
        self._claim = claim
        self.pool = pool
        self._members = [self._next() for _ in range(pool)]  # when each is, or was, ready
        heapq.heapify(self._members)

    def take(self, now: float) -> Start:
        """Return the next start."""
        if self._members and self._members[0] <= now:
            heapq.heapreplace(self._members, now + self._next())
            return Start(self._claim, cold=False)
        return Start(self._next(), cold=True)

    def _next(self) -> float:
        if not self._drawn:
            self._drawn = (self._mean * factors(self._generator, self._spread, DRAWN)).tolist()[::-1]
        return self._drawn.pop()
