"""What is kept of each revision from tick to tick: its replicas, and what was read of them.

Beside it stand the windows (`metrics.window`) and what the decider remembers (`table.State`). Times are monotonic
seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

from autoscaler.metrics.collector import Reading
from autoscaler.scaling.table import NAN, BoolArray, Columns, FloatArray, IntArray, Rows, default

UNDECIDED = -1


@dataclass(frozen=True, slots=True)
class Told(Columns):
    """Readings of one tick, and what activators hold of the same revisions."""

    work: FloatArray = field(metadata=default(0.0))
    missing: FloatArray = field(metadata=default(0.0))
    served: FloatArray = field(metadata=default(0.0))
    requests: FloatArray = field(metadata=default(0.0))
    busy: BoolArray = field(metadata=default(False))
    complete: BoolArray = field(metadata=default(False))
    crowd: FloatArray = field(metadata=default(0.0))
    latency: FloatArray = field(metadata=default(NAN))
    answers: FloatArray = field(metadata=default(0.0))

    @classmethod
    def by(cls, readings: Sequence[Reading]) -> Told:
        """The columns of these readings."""
        columns = cls.empty(len(readings))
        for name in cls.names():
            getattr(columns, name)[:] = list(map(attrgetter(name), readings))
        return columns


@dataclass(frozen=True, slots=True)
class Measured(Columns):
    """One row per revision."""

    desired: IntArray = field(metadata=default(UNDECIDED))  # by the last decision
    current: IntArray = field(metadata=default(0))  # replicas asked for
    ready: IntArray = field(metadata=default(0))
    starting_seconds: FloatArray = field(metadata=default(0.0))  # ages of the starting replicas, added up
    counted_at: FloatArray = field(metadata=default(NAN))  # when these were counted; NaN: never
    adopted: BoolArray = field(metadata=default(False))  # found with replicas
    first_read: FloatArray = field(metadata=default(NAN))
    last_read: FloatArray = field(metadata=default(NAN))
    idle_from: FloatArray = field(metadata=default(NAN))
    heard: BoolArray = field(metadata=default(False))  # whether the last tick heard every ready replica
    crowd: FloatArray = field(metadata=default(0.0))  # as the last tick heard
    served: FloatArray = field(metadata=default(0.0))  # slot-seconds that went to `requests`, older ones fading
    requests: FloatArray = field(metadata=default(0.0))
    latency: FloatArray = field(metadata=default(NAN))
    answers: FloatArray = field(metadata=default(0.0))
    start_time: FloatArray = field(metadata=default(NAN))  # s that a start takes

    def is_alive(self, rows: Rows | int) -> BoolArray:
        """Whether there is any replica."""
        alive: BoolArray = (self.current[rows] > 0) | (self.ready[rows] > 0)
        return alive

    def age(self, rows: Rows | int, now: float) -> None:
        """Let the starting replicas grow older."""
        elapsed = np.fmax(now - self.counted_at[rows], 0.0)
        self.starting_seconds[rows] += np.maximum(self.current[rows] - self.ready[rows], 0) * elapsed
        self.counted_at[rows] = now

    def count(self, row: int, current: int, ready: int, now: float) -> None:
        """Take other numbers of replicas; those that became ready take their share of the ages along."""
        before = max(0, int(self.current[row]) - int(self.ready[row]))
        self.age(row, now)
        self.current[row], self.ready[row] = current, ready
        starting = max(0, current - ready)
        if starting < before:
            self.starting_seconds[row] *= starting / before

    def forget_readings(self, row: int) -> None:
        """All but how long requests and starts take, which does not change with the last replica."""
        self.first_read[row] = self.last_read[row] = self.idle_from[row] = self.latency[row] = NAN
        self.heard[row], self.crowd[row], self.answers[row] = False, 0.0, 0.0

    def asked(self, rows: IntArray) -> None:
        """The replicas of these are asked: what they said before is no longer what holds."""
        self.heard[rows], self.crowd[rows], self.answers[rows] = False, 0.0, 0.0

    def take_in(self, rows: IntArray, told: Told, window: FloatArray, now: float) -> None:
        """These were read; requests count for less by e in each `window`."""
        elapsed = np.fmax(now - self.last_read[rows], 0.0)
        first = self.first_read[rows]
        self.first_read[rows] = np.where(np.isnan(first), now, first)
        self.last_read[rows] = now
        self.heard[rows], self.crowd[rows] = told.complete, told.crowd
        self.latency[rows], self.answers[rows] = told.latency, told.answers
        self.idle_from[rows[told.busy | np.isnan(self.idle_from[rows])]] = now
        fades = np.exp(-elapsed / window)
        self.served[rows] = self.served[rows] * fades + told.served
        self.requests[rows] = self.requests[rows] * fades + told.requests

    def service_time(self, rows: Rows) -> FloatArray:
        """Slot-seconds of one request; NaN where none was measured."""
        served, requests = self.served[rows], self.requests[rows]
        times = np.full(len(served), NAN)
        with np.errstate(over="ignore"):  # what replicas say may be nonsense
            np.divide(served, requests, out=times, where=requests > 0.0)
        return times

    def idle(self, rows: Rows, now: float) -> FloatArray:
        """Seconds without any work; NaN where not every replica was heard, or none is ready."""
        known = self.heard[rows] & (self.ready[rows] > 0)
        return np.where(known, now - self.idle_from[rows], NAN)
