"""All revisions of our class as the decider sees them: their rows, windows and memory from tick to tick.

Between the collector (what was read) and the decider (pure). A row is *active* while it has replicas or requests that
wait; the others cost nothing. When the last replica goes, all that was measured of the revision is forgotten.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoscaler.config import Settings
from autoscaler.metrics.collector import Reading
from autoscaler.metrics.source import LoadView
from autoscaler.metrics.window import Windows
from autoscaler.scaling.decider import decide
from autoscaler.scaling.reasons import Reason
from autoscaler.scaling.replay import inputs_of
from autoscaler.scaling.table import NAN, IntArray, Observations, Specs, State
from clusters.objects import Key

FIRST_ROWS = 64
UNDECIDED = -1
START_QUANTILE = 0.75  # most starts are shorter; one that was very long counts for little
KEPT_STARTS = 8  # of which the start time is a quantile: enough for one, and soon forgotten when starts change
Loads = Callable[[Key], LoadView]


@dataclass(frozen=True, slots=True)
class Change:
    """A new decision about one revision, different from the one before."""

    key: Key
    before: int
    desired: int
    reasons: tuple[Reason, ...]
    inputs: Mapping[str, Any] = field(default_factory=dict)  # what it was made from, for `replay`


@dataclass(slots=True)
class _Row:
    """What is kept of a revision outside the arrays."""

    number: int
    spec: Mapping[str, float | int | bool]
    desired: int = UNDECIDED
    first_read: float = NAN
    last_read: float = NAN
    idle_from: float = NAN
    heard: bool = False  # whether the last tick heard every ready replica
    crowd: float = 0.0  # as the last tick heard
    current: int = 0
    ready: int = 0
    starting_seconds: float = 0.0
    counted_at: float = NAN
    adopted: bool = False
    served: float = 0.0
    requests: float = 0.0
    latency: float = NAN
    answers: float = 0.0
    starts: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_STARTS))

    @property
    def starting(self) -> int:
        return max(0, self.current - self.ready)

    @property
    def alive(self) -> bool:
        return self.current > 0 or self.ready > 0


class Fleet:
    """The revisions, by key. Times are monotonic seconds."""

    def __init__(self, settings: Settings, loads: Loads) -> None:
        self._settings = settings
        self._loads = loads
        self._rows: dict[Key, _Row] = {}
        self._free = list(range(FIRST_ROWS))
        self._specs = Specs.empty(FIRST_ROWS)
        self._state = State.empty(FIRST_ROWS)
        self._windows = Windows(FIRST_ROWS)

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._rows))

    def desired(self, key: Key) -> int:
        """Replicas by the last decision; -1 before the first."""
        return self._rows[key].desired

    def work(self, key: Key, now: float) -> float:
        """Slots in use over the panic window; 0 without data."""
        row = self._rows[key]
        rows = np.array([row.number])
        window = self._specs.stable_window[rows] * self._settings.scaling.panic_window_share
        work = float(self._windows.average(rows, window, now).work[0])
        return 0.0 if math.isnan(work) else work

    def set_spec(self, key: Key, spec: Mapping[str, float | int | bool]) -> bool:
        """Take a revision in, or its changed wishes (columns of `Specs`); whether anything changed."""
        row = self._rows.get(key)
        if row is not None and row.spec == spec:
            return False
        if row is None:
            row = self._rows[key] = _Row(self._new_number(), spec)
            self._windows.reset(row.number, float(spec["stable_window"]))
        elif row.spec["stable_window"] != spec["stable_window"]:
            self._forget_readings(row, float(spec["stable_window"]))
        row.spec = spec
        self._specs.set_row(row.number, spec)
        return True

    def remove(self, key: Key) -> None:
        """The revision is gone."""
        row = self._rows.pop(key, None)
        if row is not None:
            self._state.set_row(row.number, {})
            self._free.append(row.number)

    def set_replicas(self, key: Key, current: int, ready: int, now: float) -> None:
        """Replicas asked for and ready ones, as they are now. The first call tells whether they were found here."""
        row = self._rows[key]
        if math.isnan(row.counted_at):
            row.adopted = ready > 0
        was_alive = row.alive
        self._age(row, current, ready, now)
        if was_alive and not row.alive:
            self._forget_readings(row, float(row.spec["stable_window"]))
            row.adopted = False

    def started(self, key: Key, seconds: float) -> None:
        """One more cold start of the revision was measured. Kept on the way to zero; of revisions here only."""
        if key in self._rows and math.isfinite(seconds) and seconds > 0.0:
            self._rows[key].starts.append(seconds)

    def start_time(self, key: Key) -> float:
        """Seconds that a start takes: the 0.75 quantile of the latest ones; NaN before one was measured."""
        row = self._rows.get(key)
        return float(np.quantile(row.starts, START_QUANTILE)) if row is not None and row.starts else NAN

    def touch(self, key: Key, now: float) -> None:
        """There was work just now: idle time starts anew."""
        self._rows[key].idle_from = now

    def is_at_zero(self, key: Key) -> bool:
        """Whether the revision has no replica, and may be sent a request at any moment."""
        row = self._rows[key]
        return not row.alive and bool(row.spec["reachable"])

    def is_active(self, key: Key) -> bool:
        """Whether the revision has replicas, or requests that wait."""
        row = self._rows[key]
        return row.alive or self._loads(key).queued > 0

    def active(self) -> list[Key]:
        """The revisions that a tick has to look at."""
        return [key for key in self._rows if self.is_active(key)]

    def observe(self, readings: Mapping[Key, Reading], asked: Iterable[Key], now: float) -> None:
        """Take what a tick has read; `asked` names all revisions whose replicas were asked.

        A reading of a revision whose last replica went meanwhile is of a life that is forgotten.
        """
        for key in asked:
            if key in self._rows:
                self._rows[key].heard, self._rows[key].crowd, self._rows[key].answers = False, 0.0, 0.0
        found = ((self._rows.get(key), key, reading) for key, reading in readings.items())
        known = [(row, key, reading) for row, key, reading in found if row is not None and row.alive]
        if not known:
            return
        rows = np.array([row.number for row, _, _ in known])
        tick = self._settings.sampling.tick
        start = np.array([now - tick if math.isnan(row.last_read) else row.last_read for row, _, _ in known])
        work = np.array([self._least_work(key, reading) for _, key, reading in known])
        self._windows.record(rows, start, now, work, np.array([reading.missing for _, _, reading in known]))
        for row, key, reading in known:
            self._note(row, key, reading, now)

    def decide(self, keys: Sequence[Key], now: float) -> list[Change]:
        """Decide for these revisions; the answers that differ from the last ones."""
        known = [(key, self._rows[key]) for key in keys if key in self._rows]
        if not known:
            return []
        rows = np.array([row.number for _, row in known])
        seen = self._observations(known, rows, now)
        scaling, specs, former = self._settings.scaling, self._specs.take(rows), self._state.take(rows)
        decisions, state = decide(specs, seen, former, now, scaling)
        changes = []
        for index, ((key, row), desired) in enumerate(zip(known, decisions.desired.tolist(), strict=True)):
            before = row.current if row.desired == UNDECIDED else row.desired
            row.desired = desired
            if desired != before:
                inputs = inputs_of(specs, seen, former, index, now, scaling)
                changes.append(Change(key, before, desired, decisions.reasons(index), inputs))
        self._state.put(rows, state)
        return changes

    def _observations(self, known: Sequence[tuple[Key, _Row]], rows: IntArray, now: float) -> Observations:
        window = self._specs.stable_window[rows]
        stable = self._windows.average(rows, window, now)
        panic = self._windows.average(rows, window * self._settings.scaling.panic_window_share, now)
        loads = [self._loads(key) for key, _ in known]
        for _, row in known:
            self._age(row, row.current, row.ready, now)
        return Observations(
            current=np.array([row.current for _, row in known]),
            ready=np.array([row.ready for _, row in known]),
            starting_seconds=np.array([row.starting_seconds for _, row in known]),
            stable=stable.work,
            panic=panic.work,
            unknown=np.nan_to_num(stable.missing),
            age=np.array([now - row.first_read for _, row in known]),
            covered=stable.covered,
            queued=np.array([float(load.queued) for load in loads]),
            crowd=np.array([row.crowd for _, row in known]),
            active=np.array([float(load.active) for load in loads]),
            idle=np.array([now - row.idle_from if row.heard and row.ready else NAN for _, row in known]),
            service_time=np.array([row.served / row.requests if row.requests > 0 else NAN for _, row in known]),
            start_time=np.array([self.start_time(key) for key, _ in known]),
            latency=np.array([row.latency for _, row in known]),
            answers=np.array([row.answers for _, row in known]),
            adopted=np.array([row.adopted for _, row in known]),
        )

    def _least_work(self, key: Key, reading: Reading) -> float:
        """Silent replicas may be the ones that work on what passes through the activator."""
        return reading.work if reading.complete else max(reading.work, float(self._loads(key).active))

    def _note(self, row: _Row, key: Key, reading: Reading, now: float) -> None:
        elapsed = 0.0 if math.isnan(row.last_read) else now - row.last_read
        row.first_read = now if math.isnan(row.first_read) else row.first_read
        row.last_read = now
        row.heard, row.crowd = reading.complete, reading.crowd
        row.latency, row.answers = reading.latency, reading.answers
        load = self._loads(key)
        if reading.busy or load.queued or load.active or math.isnan(row.idle_from):
            row.idle_from = now
        fades = math.exp(-elapsed / float(row.spec["stable_window"]))
        row.served = row.served * fades + reading.served
        row.requests = row.requests * fades + reading.requests

    @staticmethod
    def _age(row: _Row, current: int, ready: int, now: float) -> None:
        """Let the starting replicas grow older; those that became ready take their share of the ages along."""
        before = row.starting
        if not math.isnan(row.counted_at):
            row.starting_seconds += before * (now - row.counted_at)
        row.current, row.ready, row.counted_at = current, ready, now
        if row.starting < before:
            row.starting_seconds *= row.starting / before

    def _forget_readings(self, row: _Row, window: float) -> None:
        self._windows.reset(row.number, window)
        self._state.set_row(row.number, {})
        row.first_read = row.last_read = row.idle_from = NAN
        row.heard, row.crowd = False, 0.0
        row.latency, row.answers = NAN, 0.0

    def _new_number(self) -> int:
        if not self._free:
            rows = len(self._specs)
            self._specs, self._state = self._specs.grown(2 * rows), self._state.grown(2 * rows)
            self._windows.grow(2 * rows)
            self._free = list(range(rows, 2 * rows))
        return self._free.pop()
