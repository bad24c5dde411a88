"""Queries of Spark: a driver that waits for its executors, on a cluster where drivers can take all room.

Volcano reserves the resources of a whole job (`minResources`) before it starts. The allocator does the same for a
training job that waits: it starts with its whole minimum.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from loadtests.gpu.work import Sizer, Work

QUERIES, CPUS, NODE = 104, 32, 8
"""TPC-DS' queries; 4 nodes with 8 CPU."""
EXECUTORS: Final = 5
AT_ONCE: Final = 26
"""Queries that are submitted at once without reservation."""
START: Final = 3.0
SEED: Final = 1


class Query(Work):
    """A query: its first unit is the driver, which does no work. Executors start when the driver runs."""

    __slots__ = ()

    def advance(self, now: float, step: float) -> None:
        """Work for a step with the executors."""
        begin = now - step
        running = sum(join <= begin for join in self.joins)
        self.work -= step * max(0, running - 1)
        if self.work <= 1e-9:
            self.ended, self.held, self.joins = now, 0, []


def make_queries() -> list[Query]:
    """Return the queries, all submitted at the start: their work in CPU-seconds is drawn at random."""
    some = random.Random(SEED)
    whole = 1 + EXECUTORS
    return [
        Query(f"Query team/{number:03}", 0.0, some.lognormvariate(5.0, 0.7), whole, whole, START)
        for number in range(QUERIES)
    ]


def drivers_first(at_once: int) -> Sizer:
    """Return the sizer without reservation: so many drivers run, and executors get what they leave, oldest first."""

    def size(now: float, jobs: Sequence[Work]) -> None:
        running = jobs[:at_once]
        _give_executors(running, CPUS - len(running), now)

    return size


def split(drivers: int) -> Sizer:
    """Return the sizer with nodes of their own for drivers: they have `drivers` CPU, and executors the others."""

    def size(now: float, jobs: Sequence[Work]) -> None:
        _give_executors(jobs[:drivers], CPUS - drivers, now)

    return size


def _give_executors(running: Sequence[Work], free: int, now: float) -> None:
    for job in running:
        executors = min(EXECUTORS, free)
        free -= executors
        job.resize(1 + executors, now)
