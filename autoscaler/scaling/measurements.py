"""Measurements of each revision between ticks: its replicas and their readings.

Windowed averages are in `metrics.window`, the decider's memory in `table.DeciderState`. Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

from autoscaler.metrics.collector import RevisionReading
from autoscaler.scaling.table import NAN, BoolArray, Columns, FloatArray, IntArray, Rows, default

UNDECIDED = -1


@dataclass(frozen=True, slots=True)
class TickReadings(Columns):
    """The readings of one tick, one row per revision."""

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
    def from_readings(cls, readings: Sequence[RevisionReading]) -> TickReadings:
        """Return the columns of these readings."""
        columns = cls.empty(len(readings))
        for name in cls.names():
            getattr(columns, name)[:] = list(map(attrgetter(name), readings))
        return columns


@dataclass(frozen=True, slots=True)
class Measurements(Columns):
    """One row per revision."""

    desired: IntArray = field(metadata=default(UNDECIDED))  # by the last decision
    current: IntArray = field(metadata=default(0))  # desired replicas of the Deployment
    ready: IntArray = field(metadata=default(0))
    starting_seconds: FloatArray = field(metadata=default(0.0))  # sum of the ages of starting replicas
    counted_at: FloatArray = field(metadata=default(NAN))  # time of these counts; NaN: never
    adopted: BoolArray = field(metadata=default(False))  # had replicas when first seen
    first_read: FloatArray = field(metadata=default(NAN))
    last_read: FloatArray = field(metadata=default(NAN))
    idle_from: FloatArray = field(metadata=default(NAN))
    complete: BoolArray = field(metadata=default(False))  # whether the last tick read every ready replica
    crowd: FloatArray = field(metadata=default(0.0))  # of the last tick
    served: FloatArray = field(metadata=default(0.0))  # slot-seconds of `requests`, with exponential decay
    requests: FloatArray = field(metadata=default(0.0))
    latency: FloatArray = field(metadata=default(NAN))
    answers: FloatArray = field(metadata=default(0.0))
    start_time: FloatArray = field(metadata=default(NAN))  # s of one start

    def is_alive(self, rows: Rows | int) -> BoolArray:
        """Return whether the revision has any replica."""
        alive: BoolArray = (self.current[rows] > 0) | (self.ready[rows] > 0)
        return alive

    def age(self, rows: Rows | int, now: float) -> None:
        """Increase the ages of the starting replicas."""
        elapsed = np.fmax(now - self.counted_at[rows], 0.0)
        self.starting_seconds[rows] += np.maximum(self.current[rows] - self.ready[rows], 0) * elapsed
        self.counted_at[rows] = now

    def count(self, row: int, current: int, ready: int, now: float) -> None:
        """Set the numbers of replicas. Replicas that became ready take their share of the ages with them."""
        before = max(0, int(self.current[row]) - int(self.ready[row]))
        self.age(row, now)
        self.current[row], self.ready[row] = current, ready
        starting = max(0, current - ready)
        if starting < before:
            self.starting_seconds[row] *= starting / before

    def forget_readings(self, row: int) -> None:
        """Clear all but the durations of requests and starts, which do not change with the last replica."""
        self.first_read[row] = self.last_read[row] = self.idle_from[row] = self.latency[row] = NAN
        self.complete[row], self.crowd[row], self.answers[row] = False, 0.0, 0.0

    def begin_tick(self, rows: IntArray) -> None:
        """Clear the values of the last tick for these rows, whose replicas are being read."""
        self.complete[rows], self.crowd[rows], self.answers[rows] = False, 0.0, 0.0

    def record(self, rows: IntArray, readings: TickReadings, window: FloatArray, now: float) -> None:
        """Record readings; the weight of earlier requests decays by e in each `window`."""
        elapsed = np.fmax(now - self.last_read[rows], 0.0)
        first = self.first_read[rows]
        self.first_read[rows] = np.where(np.isnan(first), now, first)
        self.last_read[rows] = now
        self.complete[rows], self.crowd[rows] = readings.complete, readings.crowd
        self.latency[rows], self.answers[rows] = readings.latency, readings.answers
        self.idle_from[rows[readings.busy | np.isnan(self.idle_from[rows])]] = now
        fades = np.exp(-elapsed / window)
        self.served[rows] = self.served[rows] * fades + readings.served
        self.requests[rows] = self.requests[rows] * fades + readings.requests

    def service_time(self, rows: Rows) -> FloatArray:
        """Return the slot-seconds of one request; NaN without measurements."""
        served, requests = self.served[rows], self.requests[rows]
        times = np.full(len(served), NAN)
        with np.errstate(over="ignore"):  # faulty readings
            np.divide(served, requests, out=times, where=requests > 0.0)
        return times

    def idle(self, rows: Rows, now: float) -> FloatArray:
        """Return the seconds without any work; NaN when not every replica was read, or none is ready."""
        known = self.complete[rows] & (self.ready[rows] > 0)
        return np.where(known, now - self.idle_from[rows], NAN)
