"""All revisions of our class as the decider sees them: their rows, windows and memory from tick to tick.

Between the collector (what was read) and the decider (pure). A row is *active* while it has replicas or requests that
wait; the others cost nothing. When the last replica goes, all that was measured of the revision is forgotten but how
long its requests and its starts take.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np

from autoscaler.config import Settings
from autoscaler.metrics.collector import Reading
from autoscaler.metrics.source import LoadView
from autoscaler.metrics.window import Windows
from autoscaler.scaling.decider import decide
from autoscaler.scaling.measured import UNDECIDED, Measured, Told
from autoscaler.scaling.reasons import Reason
from autoscaler.scaling.replay import inputs_of
from autoscaler.scaling.roster import Roster, compact
from autoscaler.scaling.table import NAN, FloatArray, Observations, Rows, Specs, State
from clusters.base.objects import Key

START_QUANTILE = 0.75  # most starts are shorter; one that was very long counts for little
KEPT_STARTS = 8  # of which the start time is a quantile: enough for one, and soon forgotten when starts change
Loads = Callable[[Key], LoadView]
Wished = Mapping[str, float | int | bool]


@dataclass(frozen=True, slots=True)
class Change:
    """A new decision about one revision, different from the one before."""

    key: Key
    before: int
    desired: int
    reasons: tuple[Reason, ...]
    inputs: Mapping[str, Any] = field(default_factory=dict)  # what it was made from, for `replay`


class Fleet:
    """The revisions, by key. Times are monotonic seconds."""

    def __init__(self, settings: Settings, loads: Loads) -> None:
        self._settings = settings
        self._loads = loads
        self._roster = Roster()
        self._wished: dict[Key, Wished] = {}
        self._starts: dict[Key, deque[float]] = {}
        rows = self._roster.rows
        self._specs, self._state, self._measured = Specs.empty(rows), State.empty(rows), Measured.empty(rows)
        self._windows = Windows(rows)

    def __contains__(self, key: Key) -> bool:
        return key in self._roster

    def __iter__(self) -> Iterator[Key]:
        return iter(self._roster)

    def desired(self, key: Key) -> int:
        """Replicas by the last decision; -1 before the first."""
        return int(self._measured.desired[self._roster.number(key)])

    def work(self, key: Key, now: float) -> float:
        """Slots in use over the panic window; 0 without data."""
        return self.works([key], now)[0]

    def works(self, keys: Sequence[Key], now: float) -> list[float]:
        """The same of several, all of which are here."""
        if not keys:
            return []
        found: list[float] = np.nan_to_num(self._panic(compact(self._roster.numbers(keys)), now)).tolist()
        return found

    def set_spec(self, key: Key, spec: Wished) -> bool:
        """Take a revision in, or its changed wishes (columns of `Specs`); whether anything changed."""
        before = self._wished.get(key)
        if before == spec:
            return False
        row = self._roster.number(key) if before is not None else self._add(key)
        if before is None or before["stable_window"] != spec["stable_window"]:
            self._forget_readings(row, float(spec["stable_window"]))
        self._wished[key] = spec
        self._specs.set_row(row, spec)
        return True

    def remove(self, key: Key) -> None:
        """The revision is gone."""
        row = self._roster.remove(key)
        if row is not None:
            self._measured.set_row(row, {})  # nobody's rows have no replicas
            del self._wished[key]
            self._starts.pop(key, None)

    def set_replicas(self, key: Key, current: int, ready: int, now: float) -> None:
        """Replicas asked for and ready ones, as they are now. The first call tells whether they were found here."""
        row, measured = self._roster.number(key), self._measured
        if math.isnan(measured.counted_at[row]):
            measured.adopted[row] = ready > 0
        was_alive = measured.is_alive(row)
        measured.count(row, current, ready, now)
        if was_alive and not measured.is_alive(row):
            self._forget_readings(row, float(self._specs.stable_window[row]))
            measured.adopted[row] = False

    def started(self, key: Key, seconds: float) -> None:
        """One more cold start of the revision was measured. Kept on the way to zero; of revisions here only."""
        if key in self._roster and math.isfinite(seconds) and seconds > 0.0:
            starts = self._starts.setdefault(key, deque(maxlen=KEPT_STARTS))
            starts.append(seconds)
            self._measured.start_time[self._roster.number(key)] = np.quantile(starts, START_QUANTILE)

    def start_time(self, key: Key) -> float:
        """Seconds that a start takes: the 0.75 quantile of the latest ones; NaN before one was measured."""
        return float(self._measured.start_time[self._roster.number(key)]) if key in self._roster else NAN

    def touch(self, key: Key, now: float) -> None:
        """There was work just now: idle time starts anew."""
        row = self._roster.number(key)
        self._measured.idle_from[row] = now
        self._state.at_rest[row] = False

    def is_at_zero(self, key: Key) -> bool:
        """Whether the revision has no replica, and may be sent a request at any moment."""
        row = self._roster.number(key)
        return bool(self._specs.reachable[row]) and not self._measured.is_alive(row)

    def is_active(self, key: Key) -> bool:
        """Whether the revision has replicas, or requests that wait."""
        return bool(self._measured.is_alive(self._roster.number(key))) or self._loads(key).queued > 0

    def active(self) -> list[Key]:
        """The revisions that a tick has to look at, by their rows: those that lie side by side cost least."""
        active = self._measured.is_alive(slice(None))
        for key in self._roster.keys(np.flatnonzero(~active)):
            if self._loads(key).queued > 0:
                active[self._roster.number(key)] = True
        return self._roster.keys(np.flatnonzero(active))

    def any_active(self) -> bool:
        """Whether a tick has anything to look at."""
        return bool(self._measured.is_alive(slice(None)).any()) or any(map(self.is_active, self._roster))

    def observe(self, readings: Mapping[Key, Reading], asked: Iterable[Key], now: float) -> None:
        """Take what a tick has read; `asked` names all revisions whose replicas were asked.

        A reading of a revision whose last replica went meanwhile is of a life that is forgotten.
        """
        measured = self._measured
        measured.asked(self._roster.numbers(asked))
        known = self._roster.known(readings)
        rows = self._roster.numbers(known)
        lives = measured.is_alive(rows)
        rows, known = rows[lives], list(compress(known, lives.tolist()))
        if not known:
            return
        told = Told.by([readings[key] for key in known])
        queued, active = self._held(known)
        # silent replicas may be the ones that work on what passes through the activator
        work = np.where(told.complete, told.work, np.maximum(told.work, active))
        last = measured.last_read[rows]
        start = np.where(np.isnan(last), now - self._settings.sampling.tick, last)
        self._windows.record(rows, start, now, work, told.missing)
        told.busy[(queued > 0.0) | (active > 0.0)] = True
        self._state.at_rest[rows[told.busy]] = False
        measured.take_in(rows, told, self._specs.stable_window[rows], now)

    def decide(self, keys: Iterable[Key], now: float) -> list[Change]:
        """Decide for these revisions; the answers that differ from the last ones."""
        known = self._roster.known(keys)
        if not known:
            return []
        rows = compact(self._roster.numbers(known))
        seen = self._observations(known, rows, now)
        scaling, specs, former = self._settings.scaling, self._specs.take(rows), self._state.take(rows)
        decisions, state = decide(specs, seen, former, now, scaling)
        before, desired = self._measured.desired[rows], decisions.desired
        before = np.where(before == UNDECIDED, seen.current, before)
        changes = [
            Change(
                known[index], int(before[index]), int(desired[index]), decisions.reasons(index),
                inputs_of(specs, seen, former, index, now, scaling),
            )
            for index in np.flatnonzero(desired != before).tolist()
        ]  # fmt: skip
        self._measured.desired[rows] = desired
        self._state.put(rows, state)  # last: all above may look into the former state
        return changes

    def _observations(self, keys: Sequence[Key], rows: Rows, now: float) -> Observations:
        measured = self._measured
        measured.age(rows, now)
        stable = self._windows.average(rows, self._specs.stable_window[rows], now)
        queued, active = self._held(keys)
        return Observations(
            current=measured.current[rows],
            ready=measured.ready[rows],
            starting_seconds=measured.starting_seconds[rows],
            stable=stable.work,
            panic=self._panic(rows, now),
            unknown=np.fmax(stable.missing, 0.0),
            age=now - measured.first_read[rows],
            covered=stable.covered,
            queued=queued,
            crowd=measured.crowd[rows],
            active=active,
            idle=measured.idle(rows, now),
            service_time=measured.service_time(rows),
            start_time=measured.start_time[rows],
            latency=measured.latency[rows],
            answers=measured.answers[rows],
            adopted=measured.adopted[rows],
        )

    def _panic(self, rows: Rows, now: float) -> FloatArray:
        stable, settings = self._specs.stable_window[rows], self._settings.scaling
        window = np.minimum(np.maximum(stable * settings.panic_window_share, settings.least_panic_window), stable)
        return self._windows.work(rows, window, now)

    def _held(self, keys: Sequence[Key]) -> tuple[FloatArray, FloatArray]:
        """Requests that wait at activators, and that pass through them."""
        loads = [self._loads(key) for key in keys]
        queued, active = [load.queued for load in loads], [load.active for load in loads]
        return np.array(queued, np.float64), np.array(active, np.float64)

    def _add(self, key: Key) -> int:
        row, rows = self._roster.add(key), self._roster.rows
        if rows > len(self._specs):
            self._specs, self._state = self._specs.grown(rows), self._state.grown(rows)
            self._measured = self._measured.grown(rows)
            self._windows.grow(rows)
        return row

    def _forget_readings(self, row: int, window: float) -> None:
        self._windows.reset(row, window)
        self._state.set_row(row, {})
        self._measured.forget_readings(row)
