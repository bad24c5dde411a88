"""The replicas of one revision in a simulation: their start times, and which are starting, ready or draining.

A start is a cold start or the claim of a warm-pool member. A pool has a fixed size: each claimed member is replaced at
once, so `size` members are billed all the time, ready or not. The first ones start with the trace.

Order of removal: starting replicas first, the newest before older ones; then those with the fewest requests. A replica
with requests drains: it accepts no new ones and is billed until its last one is answered. This applies to all policies
here, though plain Kubernetes would often stop a busy replica and keep an idle one.
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


class Replica:
    """One replica: when it was requested, its start, and its requests."""

    __slots__ = ("asked_at", "drains", "load", "start")

    def __init__(self, asked_at: float, start: Start) -> None:
        self.asked_at = asked_at
        self.start = start
        self.load = 0
        self.drains = False


class Replicas:
    """All replicas. `serving` requests are in replicas that accept others too, `draining` in those that do not."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._starting: dict[Replica, None] = {}
        self._ready: list[dict[Replica, None]] = [{} for _ in range(slots + 1)]  # by load, each in order of arrival
        self._going = 0
        self.ready = 0
        self.serving = 0
        self.draining = 0

    @property
    def current(self) -> int:
        """Desired replicas: ready or starting."""
        return self.ready + len(self._starting)

    @property
    def billed(self) -> int:
        """Billed replicas, including draining ones."""
        return self.current + self._going

    def begin(self, replica: Replica) -> None:
        """Start the replica."""
        self._starting[replica] = None

    def is_awaited(self, replica: Replica) -> bool:
        """Return whether it is starting and was not removed."""
        return replica in self._starting

    def become_ready(self, replica: Replica) -> None:
        """Accept requests on the replica from now on."""
        del self._starting[replica]
        self._ready[0][replica] = None
        self.ready += 1

    def take(self) -> Replica | None:
        """Return the replica with the fewest requests, for one more; None when all are full."""
        for load in range(self._slots):
            if self._ready[load]:
                replica = next(iter(self._ready[load]))
                self._move(replica, load + 1)
                self.serving += 1
                return replica
        return None

    def answered(self, replica: Replica) -> None:
        """Record that one of its requests was answered."""
        if not replica.drains:
            self.serving -= 1
            self._move(replica, replica.load - 1)
            return
        self.draining -= 1
        replica.load -= 1
        self._going -= replica.load == 0

    def remove(self, count: int) -> None:
        """Remove that many replicas."""
        for _ in range(min(count, self.current)):
            if self._starting:
                self._starting.popitem()
                continue
            least = next(group for group in self._ready if group)
            replica, _ = least.popitem()
            self.ready -= 1
            if replica.load:
                replica.drains = True
                self._going += 1
                self.serving -= replica.load
                self.draining += replica.load

    def _move(self, replica: Replica, load: int) -> None:
        del self._ready[replica.load][replica]
        replica.load = load
        self._ready[load][replica] = None
