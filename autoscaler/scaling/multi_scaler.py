"""The decider's rows, windows and memory for all revisions of our class, from tick to tick.

This class connects the collector (readings) and the decider (pure). A row is *active* while the revision has replicas
or queued requests; inactive rows cost nothing. When the last replica is removed, all measurements of the revision are
cleared, except the durations of its requests and starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple, Protocol

import numpy as np

from autoscaler.config import AutoscalerSettings
from autoscaler.metrics.collector import RevisionReading
from autoscaler.metrics.revision_page import RevisionView
from autoscaler.metrics.source import LoadView
from autoscaler.metrics.window import Windows
from autoscaler.scaling.decider import decide, panic_window
from autoscaler.scaling.measurements import UNDECIDED, Measurements, TickReadings
from autoscaler.scaling.reasons import Reason, Rule
from autoscaler.scaling.replay import inputs_of
from autoscaler.scaling.row_index import RowIndex, compact
from autoscaler.scaling.start_times import StartTimes
from autoscaler.scaling.table import NAN, UNLIMITED, DeciderState, FloatArray, IntArray, Observations, Rows, Specs
from clusters.base.objects import Key

Loads = Callable[[Key], LoadView]
"""Returns the requests of a revision at activators."""
SpecRow = Mapping[str, float | int | bool]


class Limit(NamedTuple):
    """Replicas for which a revision has GPUs, and why there are no more."""

    replicas: int
    why: str


class GpuLimits(Protocol):
    """The GPUs that revisions may have."""

    def limits(self, keys: Sequence[Key], wanted: IntArray, now: float) -> Mapping[int, Limit]:
        """Return the limits of revisions that cannot have the replicas that they want, by their index in `keys`."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """A new decision about one revision that differs from the previous one."""

    key: Key
    before: int
    desired: int
    reasons: tuple[Reason, ...]
    inputs: Mapping[str, Any] = field(default_factory=dict)  # the inputs of the decision, for `replay`


class MultiScaler:
    """The decisions about all revisions, by key. Times are monotonic seconds.

    Without `gpus`, replicas are not limited by GPUs.
    """

    def __init__(self, settings: AutoscalerSettings, loads: Loads, gpus: GpuLimits | None = None) -> None:
        self._settings = settings
        self._loads = loads
        self._gpus = gpus
        self._index = RowIndex()
        self._spec_rows: dict[Key, SpecRow] = {}
        self._start_times: dict[Key, StartTimes] = {}
        rows = self._index.rows
        self._specs, self._state, self._measured = Specs.empty(rows), DeciderState.empty(rows), Measurements.empty(rows)
        self._windows = Windows(rows)

    def __contains__(self, key: Key) -> bool:
        return key in self._index

    def __iter__(self) -> Iterator[Key]:
        return iter(self._index)

    def desired(self, key: Key) -> int:
        """Return the replicas of the last decision; -1 before the first."""
        return int(self._measured.desired[self._index.number(key)])

    def current_work(self, key: Key, now: float) -> float:
        """Return the slots in use over the panic window; 0 without data."""
        return self.current_works([key], now)[0]

    def current_works(self, keys: Sequence[Key], now: float) -> list[float]:
        """Return `current_work` of several known revisions."""
        if not keys:
            return []
        found: list[float] = np.nan_to_num(self._panic(compact(self._index.numbers(keys)), now)).tolist()
        return found

    def views(self, now: float) -> list[RevisionView]:
        """Return what is known of each revision. `desired` is `UNDECIDED` before the first decision."""
        keys = list(self)
        works = self.current_works(keys, now)
        rows = [self._index.number(key) for key in keys]
        measured = self._measured
        return [
            RevisionView(
                key, int(measured.desired[row]), int(measured.current[row]), int(measured.ready[row]), work,
                self._loads(key).queued,
            )
            for key, row, work in zip(keys, rows, works, strict=True)
        ]  # fmt: skip

    def set_spec(self, key: Key, spec: SpecRow) -> bool:
        """Add a revision, or change its row of `Specs`. Return whether anything changed."""
        before = self._spec_rows.get(key)
        if before == spec:
            return False
        row = self._index.number(key) if before is not None else self._index.add(key)
        if (rows := self._index.rows) > len(self._specs):
            self._specs, self._state = self._specs.grown(rows), self._state.grown(rows)
            self._measured = self._measured.grown(rows)
            self._windows.grow(rows)
        if before is None or before["stable_window"] != spec["stable_window"]:
            self._forget_readings(row, float(spec["stable_window"]))
        self._spec_rows[key] = spec
        self._specs.set_row(row, spec)
        return True

    def remove(self, key: Key) -> None:
        """Delete a revision."""
        row = self._index.remove(key)
        if row is not None:
            self._measured.set_row(row, {})  # unused rows have no replicas
            del self._spec_rows[key]
            self._start_times.pop(key, None)

    def set_replicas(self, key: Key, current: int, ready: int, now: float) -> None:
        """Set the current and ready replicas. The first call determines whether the revision already had replicas."""
        row, measured = self._index.number(key), self._measured
        if math.isnan(measured.counted_at[row]):
            measured.adopted[row] = ready > 0
        was_alive = measured.is_alive(row)
        measured.count(row, current, ready, now)
        if was_alive and not measured.is_alive(row):
            self._forget_readings(row, float(self._specs.stable_window[row]))
            measured.adopted[row] = False

    def record_start(self, key: Key, seconds: float) -> None:
        """Record the seconds of a cold start of a known revision. They are kept when it scales to zero."""
        if key in self._index:
            starts = self._start_times.setdefault(key, StartTimes())
            starts.record(seconds)
            self._measured.start_time[self._index.number(key)] = starts.typical()

    def start_time(self, key: Key) -> float:
        """Return the 0.75 quantile of the latest start times in seconds; NaN before one was measured."""
        return float(self._measured.start_time[self._index.number(key)]) if key in self._index else NAN

    def touch(self, key: Key, now: float) -> None:
        """Record work at `now`, which restarts the idle time."""
        row = self._index.number(key)
        self._measured.idle_from[row] = now
        self._state.at_rest[row] = False

    def is_at_zero(self, key: Key) -> bool:
        """Return whether the revision has no replica and may receive a request at any time."""
        row = self._index.number(key)
        return bool(self._specs.reachable[row]) and not self._measured.is_alive(row)

    def is_active(self, key: Key) -> bool:
        """Return whether the revision has replicas or queued requests."""
        return bool(self._measured.is_alive(self._index.number(key))) or self._loads(key).queued > 0

    def active(self) -> list[Key]:
        """Return the revisions that a tick processes, in order of their rows: contiguous rows are processed fastest."""
        active = self._measured.is_alive(slice(None))
        for key in self._index.keys(np.flatnonzero(~active)):
            if self._loads(key).queued > 0:
                active[self._index.number(key)] = True
        return self._index.keys(np.flatnonzero(active))

    def any_active(self) -> bool:
        """Return whether a tick has any revision to process."""
        return bool(self._measured.is_alive(slice(None)).any()) or any(map(self.is_active, self._index))

    def observe(self, readings: Mapping[Key, RevisionReading], scraped: Iterable[Key], now: float) -> None:
        """Record the readings of a tick; `scraped` names all revisions whose replicas were read.

        A reading of a revision whose last replica was removed meanwhile is dropped.
        """
        measured = self._measured
        measured.begin_tick(self._index.numbers(scraped))
        known = self._index.known(readings)
        rows = self._index.numbers(known)
        lives = measured.is_alive(rows)
        rows, known = rows[lives], list(compress(known, lives.tolist()))
        if not known:
            return
        readings_table = TickReadings.from_readings([readings[key] for key in known])
        queued, active = self._activator_load(known)
        # unanswering replicas may be the ones that process the activator's requests
        work = np.where(readings_table.complete, readings_table.work, np.maximum(readings_table.work, active))
        last = measured.last_read[rows]
        start = np.where(np.isnan(last), now - self._settings.sampling.tick, last)
        self._windows.record(rows, start, now, work, readings_table.missing)
        readings_table.busy[(queued > 0.0) | (active > 0.0)] = True
        self._state.at_rest[rows[readings_table.busy]] = False
        measured.record(rows, readings_table, self._specs.stable_window[rows], now)

    def decide(self, keys: Iterable[Key], now: float) -> list[Change]:
        """Decide for these revisions and return the decisions that differ from the previous ones."""
        known = self._index.known(keys)
        if not known:
            return []
        rows = compact(self._index.numbers(known))
        seen = self._observations(known, rows, now)
        scaling, specs, former = self._settings.scaling, self._specs.take(rows), self._state.take(rows)
        decisions, state = decide(specs, seen, former, now, scaling)
        limits = self._gpus.limits(known, decisions.desired, now) if self._gpus is not None else {}
        if limits:
            for index, limit in limits.items():
                seen.granted[index] = limit.replicas
            decisions, state = decide(specs, seen, former, now, scaling)
        notes = {index: {Rule.GPU.value: limit.why} for index, limit in limits.items()}
        before, desired = self._measured.desired[rows], decisions.desired
        before = np.where(before == UNDECIDED, seen.current, before)
        changes = [
            Change(
                known[index], int(before[index]), int(desired[index]), decisions.reasons(index, notes.get(index, {})),
                inputs_of(specs, seen, former, index, now, scaling, notes.get(index, {})),
            )
            for index in np.flatnonzero(desired != before).tolist()
        ]  # fmt: skip
        self._measured.desired[rows] = desired
        self._state.put(rows, state)  # last, because reasons and inputs read the former state
        return changes

    def _observations(self, keys: Sequence[Key], rows: Rows, now: float) -> Observations:
        measured = self._measured
        measured.age(rows, now)
        stable = self._windows.average(rows, self._specs.stable_window[rows], now)
        queued, active = self._activator_load(keys)
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
            granted=np.full(len(keys), UNLIMITED, np.int64),
        )

    def _panic(self, rows: Rows, now: float) -> FloatArray:
        window = panic_window(self._specs.stable_window[rows], self._settings.scaling)
        return self._windows.work(rows, window, now)

    def _activator_load(self, keys: Sequence[Key]) -> tuple[FloatArray, FloatArray]:
        """Return the queued and the active requests at activators."""
        loads = [self._loads(key) for key in keys]
        queued, active = [load.queued for load in loads], [load.active for load in loads]
        return np.array(queued, np.float64), np.array(active, np.float64)

    def _forget_readings(self, row: int, window: float) -> None:
        self._windows.reset(row, window)
        self._state.set_row(row, {})
        self._measured.forget_readings(row)
