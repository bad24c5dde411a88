"""The result of a run: the wait of each request, and the cost."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from autoscaler.scaling.table import FloatArray

IMMEDIATE = 1.0
"""Maximum wait in seconds that counts as immediate."""
HOUR = 3_600.0
"""Seconds."""


@dataclass(slots=True)
class Timeline:
    """Maximum number of billed replicas and of queued requests in each second."""

    replicas: list[int] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)

    def record(self, now: float, replicas: int, queued: int) -> None:
        """Record the values from `now` on (seconds, in ascending order)."""
        second = int(now)
        if len(self.replicas) <= second:
            self._fill(second)
        if replicas > self.replicas[second]:
            self.replicas[second] = replicas
        if queued > self.queued[second]:
            self.queued[second] = queued
        self._last = (replicas, queued)

    _last: tuple[int, int] = (0, 0)

    def _fill(self, second: int) -> None:
        more = second + 1 - len(self.replicas)
        self.replicas.extend([self._last[0]] * more)
        self.queued.extend([self._last[1]] * more)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`waits` in seconds, by arrival. `replica_seconds` are billed from the trace's start until its last response.

    `after`: billed from then until the last replica is removed; `pool`: of members of the warm pool that were not
    claimed. `starts` replicas were requested.
    """

    policy: str
    waits: FloatArray
    replica_seconds: float
    after: float
    pool: float
    starts: int
    timeline: Timeline

    @property
    def immediate(self) -> float:
        """Share of the requests that waited at most `IMMEDIATE` seconds."""
        return float(np.mean(self.waits <= IMMEDIATE))

    @property
    def hours(self) -> float:
        """Replica-hours."""
        return self.replica_seconds / HOUR

    @property
    def peak(self) -> int:
        """Maximum number of replicas."""
        return max(self.timeline.replicas, default=0)

    def quantile(self, share: float) -> float:
        """Return the quantile of the waits in seconds; `share` is from 0 to 1."""
        return float(np.quantile(self.waits, share, method="inverted_cdf"))

    def cost(self, price: float) -> float:
        """Return the cost at `price` per hour of a replica or a member."""
        return price * (self.replica_seconds + self.pool) / HOUR
