"""How long each replica takes to start: all of it, or as long as the claim of a member of the warm pool.

A pool has a fixed size; who claims a member starts another one in its place, so that `size` members are paid for all
the time, ready or not. The first ones start when the trace does.
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
    """Seconds until the replica is ready, and whether it had to start from nothing."""

    seconds: float
    cold: bool


class Starts:
    """Deals out starts, the same ones for every policy: the n-th start of a run takes as long in all of them.

    `initial`: seconds that the revision's first replica took when it was deployed, before the trace begins.
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
        """A replica is to start."""
        if self._members and self._members[0] <= now:
            heapq.heapreplace(self._members, now + self._next())
            return Start(self._claim, cold=False)
        return Start(self._next(), cold=True)

    def _next(self) -> float:
        if not self._drawn:
            self._drawn = (self._mean * factors(self._generator, self._spread, DRAWN)).tolist()[::-1]
        return self._drawn.pop()
