"""Benchmark of the decider: window averages and `decide`, with the tables of a busy fleet.

The same run measures a floor, a copy of the tables, and a peer, Knative's arithmetic in plain Python
(`pkg/autoscaler/scaling/autoscaler.go`: two averages, division, rates, bounds).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from autoscaler.metrics.window import Windows
from autoscaler.scaling.decider import decide
from autoscaler.scaling.table import AUTO, Columns, DeciderState, Observations, Specs
from loadtests.bench.figure import Figure

SIZES = {10_000: 2.0, 100_000: 30.0}  # revisions → maximum ms of a tick
TICKS = 50
WARM_UP = 65  # ticks: a full stable window
BYTES = 2_000.0  # maximum memory per revision
SEED = 1


@dataclass
class Busy:
    """A fleet with 1 to 20 replicas per revision. One in ten revisions has queued requests, one in ten a latency
    objective.
    """

    specs: Specs
    seen: Observations
    state: DeciderState
    windows: Windows
    now: float = 1_000.0

    @classmethod
    def of(cls, rows: int) -> Busy:
        """Return a fleet of `rows` revisions with full windows."""
        some = np.random.default_rng(SEED)
        current = some.integers(1, 20, rows)
        objective = np.where(some.random(rows) < 0.1, 1.0, 0.0)
        specs = Specs.of(
            max=np.full(rows, 100), target=4.0, utilization=0.7, scale_to_zero_after=AUTO, latency_objective=objective
        )
        seen = Observations.of(
            current=current,
            ready=current - some.integers(0, 2, rows),
            starting_seconds=2.0,
            age=1_000.0,
            queued=np.where(some.random(rows) < 0.1, 5.0, 0.0),
            idle=some.random(rows) * 50,
            service_time=some.random(rows) + 0.1,
            start_time=some.random(rows) * 40 + 1,
            latency=some.random(rows) * 2,
            answers=50.0,
        )
        busy = cls(specs, seen, DeciderState.empty(rows), Windows(rows))
        for _ in range(WARM_UP):
            busy.read(some)
            busy.decide()
        return busy

    def read(self, some: np.random.Generator) -> None:
        """Add a reading of each revision, one second later."""
        rows = len(self.specs)
        work = self.seen.current * some.random(rows) * 4
        self.windows.record(np.arange(rows), np.full(rows, self.now), self.now + 1.0, work, np.zeros(rows))
        self.now += 1.0

    def decide(self) -> None:
        """Run the work of a tick after the readings."""
        window, every = self.specs.stable_window, slice(None)
        stable = self.windows.average(every, window, self.now)
        panic = self.windows.work(every, window * 0.1, self.now)
        self.seen.stable[:], self.seen.covered[:], self.seen.panic[:] = stable.work, stable.covered, panic
        _, self.state = decide(self.specs, self.seen, self.state, self.now)

    def copy(self) -> None:
        """The floor."""
        for table in (self.specs, self.seen, self.state):
            for name in table.names():
                getattr(table, name).copy()

    @property
    def bytes(self) -> float:
        """Return the bytes of one revision in all tables and windows."""
        tables: tuple[Columns, ...] = (self.specs, self.seen, self.state)
        size = sum(getattr(table, name).nbytes for table in tables for name in table.names())
        return float(size + self.windows.nbytes) / len(self.specs)


def decider() -> Iterator[Figure]:
    """Yield the time of a tick of 10 000 and of 100 000 revisions, and the memory per revision."""
    for rows, aim in SIZES.items():
        busy, some = Busy.of(rows), np.random.default_rng(SEED)
        took = []
        for _ in range(TICKS):
            busy.read(some)
            took.append(_timed(busy.decide))
        floor = [_timed(busy.copy) for _ in range(TICKS)]
        yield Figure(f"decide for {rows} revisions, averages included, p50 of {TICKS}", _p50(took), "ms", aim)
        yield Figure("  floor: a copy of the same columns", _p50(floor), "ms")
        if rows == min(SIZES):
            yield Figure("  peer: Knative's arithmetic in plain Python", _p50(_peer(busy)), "ms")
            yield Figure("memory per revision, tables and windows", busy.bytes, "bytes", BYTES)


def _peer(busy: Busy) -> list[float]:
    stable, panic, ready = busy.seen.stable.tolist(), busy.seen.panic.tolist(), busy.seen.ready.tolist()
    return [_timed(lambda: knative_arithmetic(stable, panic, ready)) for _ in range(TICKS)]


def knative_arithmetic(stable: list[float], panic: list[float], ready: list[int]) -> list[int]:
    """Return Knative's calculation for each revision with its defaults, without state and reasons."""
    wanted = []
    for of_stable, of_panic, replicas in zip(stable, panic, ready, strict=True):
        count = max(replicas, 1)
        most, least = math.ceil(1_000.0 * count), math.floor(replicas / 2.0)
        by_stable = min(max(math.ceil(of_stable / 2.8), least), most)
        by_panic = min(max(math.ceil(of_panic / 2.8), least), most)
        over = by_panic / count >= 2.0
        wanted.append(min(max(by_panic, by_stable) if over else by_stable, 100))
    return wanted


def _timed(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return (time.perf_counter() - began) * 1_000


def _p50(values: list[float]) -> float:
    return statistics.median(values)
