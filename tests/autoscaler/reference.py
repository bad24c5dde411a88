"""A reference implementation of the decider in plain Python, one revision at a time, to compare with the arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from autoscaler.config import DecisionSettings
from autoscaler.scaling.table import PEAKS, Columns, DeciderState, Observations, Specs


@dataclass
class Memory:
    panic_until: float
    panic_peak: int
    below_since: float
    below_peak: int
    starting_since: float
    slow_until: float
    hold_width: float
    hold_began: float
    hold_now: int
    before: list[int]
    """What was needed in the buckets before, the latest first."""


def row_of(table: Columns, row: int) -> Any:
    """Return one row as an object with plain values."""
    values = {one.name: getattr(table, one.name)[..., row].tolist() for one in fields(table)}
    return type("Row", (), values)()


def before_of(state: Any) -> list[int]:
    """Return the buckets before the current one, the latest first."""
    return [state.peaks[(state.hold_slot - 1 - age) % PEAKS] for age in range(PEAKS)]


@dataclass
class One:
    """One revision at one time."""

    spec: Any
    seen: Any
    state: Any
    now: float
    settings: DecisionSettings

    def replicas_for(self, work: float, per_replica: float | None = None) -> int:
        if math.isnan(work):
            return 0
        slots = self.spec.target * self.spec.utilization if per_replica is None else per_replica
        needed = math.ceil(work / slots - self.settings.tolerance)
        return int(min(max(needed, 0), 1e9))

    @property
    def old(self) -> bool:
        window = self.spec.stable_window
        return bool(self.seen.age >= window and self.seen.covered >= self.settings.enough_coverage * window)

    @property
    def trusted(self) -> bool:
        return self.old or not self.seen.adopted

    @property
    def start_time(self) -> float:
        return float(self.seen.start_time if self.seen.start_time > 0 else self.settings.assumed_start_time)

    @property
    def least(self) -> int:
        least = self.spec.min if self.spec.reachable else 0
        return int(min(least if self.spec.initialized else max(least, self.spec.initial), self.spec.max))

    def stable(self, desired: int) -> int:
        if math.isnan(self.seen.stable):
            return desired
        least = self.replicas_for(self.seen.stable)
        most = self.replicas_for(self.seen.stable + self.seen.unknown)
        return least if least >= desired else min(most, desired)

    @property
    def per_peak(self) -> float:
        return float(self.spec.target * max(self.spec.utilization, self.settings.peak_utilization))

    @property
    def starting_for(self) -> float:
        seen = self.seen
        if seen.ready > 0 or seen.current == 0:
            return math.nan
        since = self.state.starting_since
        return float(seen.starting_seconds / seen.current if math.isnan(since) else self.now - since)

    def coming(self) -> float:
        age = self.starting_for
        if math.isnan(age):
            return float(self.seen.queued)
        rate = self.seen.queued / (age + self.settings.panic_window_share * self.spec.stable_window)
        return float(self.seen.queued + rate * max(self.start_time - age, 0.0))

    def waiting(self) -> int:
        seen = self.seen
        if seen.queued <= 0:
            return 0
        service_time = seen.service_time if seen.service_time > 0 else math.inf
        left = max(self.coming() - seen.starting_seconds * self.spec.target / service_time, 0.0)
        backlog = left * min(1.0, service_time / self.settings.drain_within)
        work = seen.ready * self.per_peak if math.isnan(seen.panic) else seen.panic
        return max(self.replicas_for(work + backlog, self.per_peak), 1)

    def crowded(self) -> int:
        return self.replicas_for(self.seen.crowd) if self.seen.crowd > 0 else 0

    def panic(self) -> tuple[int, float]:
        trusted = self.trusted or self.seen.queued > 0 or self.seen.crowd > 0
        wants = min(max(self.replicas_for(self.seen.panic), self.waiting(), self.crowded()), self.spec.max)
        over = trusted and wants >= self.settings.panic_threshold * max(self.seen.ready, 1)
        before = self.now < self.state.panic_until
        peak = 0
        if over or before:
            peak = max(self.state.panic_peak if before else 0, wants if trusted else 0)
        kept = self.state.panic_until if before else -math.inf
        return peak, self.now + self.spec.stable_window if over else kept

    def slow(self) -> int:
        spec, seen, settings = self.spec, self.seen, self.settings
        if spec.latency_objective <= 0 or not seen.panic >= settings.busy_share * seen.ready * spec.target:
            return 0
        ratio = seen.latency / spec.latency_objective
        if not (ratio > settings.near_objective and seen.answers >= settings.enough_answers):
            return 0
        if ratio > 1 and seen.ready >= seen.current and self.now >= self.state.slow_until:
            wanted: float = seen.ready * min(ratio, settings.most_slow_step)
            return math.ceil(wanted - settings.tolerance)
        return int(seen.ready)

    def slow_until(self, desired: int) -> float:
        if self.slow() > max(desired, self.seen.current):
            window = self.settings.panic_window_share * self.spec.stable_window
            return float(self.now + (self.start_time + window))
        return float(self.state.slow_until)

    @property
    def hold(self) -> float:
        settings = self.settings
        return float(min(max(settings.hold_starts * self.start_time, settings.hold_least), settings.hold_most))

    def needed(self) -> int:
        filled = self.replicas_for(self.seen.panic, self.per_peak) if self.trusted else 0
        queued = self.waiting() if self.seen.ready > 0 else 0
        return int(min(max(filled, queued, self.crowded(), self.slow()), self.spec.max))

    def held(self) -> tuple[int, float, float, int, list[int]]:
        """Return the held peak, and the stored state: width and begin of the current bucket, its peak, and the earlier
        buckets.
        """
        state, now = self.state, self.now
        width, began, newest, before = state.hold_width, state.hold_began, state.hold_now, before_of(state)
        needed = self.needed()
        fresh = math.isnan(width)
        if fresh and self.seen.adopted:
            needed = max(needed, self.seen.current)
        older = state.hold_before
        if not fresh and now - began >= width:
            passed = math.floor((now - began) / width)
            began += passed * width
            before = ([0] * min(passed - 1, PEAKS) + [newest, *before])[:PEAKS]
            newest, older = 0, max(before)
        peak = max(newest, older)
        wanted_width = self.hold / (PEAKS + 1)
        if fresh or needed >= peak or abs(wanted_width - width) > 0.25 * width:
            return max(peak, needed), wanted_width, now, max(peak, needed), before
        return peak, width, began, max(newest, needed), before

    def limited(self, desired: int) -> int:
        current = self.seen.current
        if self.seen.queued > 0 or not self.old:
            desired = max(desired, current)
        most = max(math.ceil(self.settings.max_up_rate * max(self.seen.ready, 1)), current)
        desired = min(max(desired, math.floor(current / self.settings.max_down_rate)), most)
        return max(desired, self.spec.activation) if current == 0 and desired > 0 else desired

    def delayed(self, desired: int) -> tuple[int, float, int]:
        current, delay = self.seen.current, self.spec.scale_down_delay
        if desired >= current or delay <= 0:
            return desired, math.nan, 0
        fresh = math.isnan(self.state.below_since)
        since = self.now if fresh else self.state.below_since
        peak = max(0 if fresh else self.state.below_peak, desired)
        return (peak, math.nan, 0) if self.now - since >= delay else (current, since, peak)

    def at_rest(self, limit: float) -> bool:
        seen = self.seen
        idle = self.state.at_rest if math.isnan(seen.idle) else seen.idle >= limit
        return bool(idle and seen.queued <= 0 and seen.active <= 0)

    def bounded(self, desired: int) -> int:
        seen, spec = self.seen, self.spec
        if seen.current > 0 or seen.queued > 0:
            desired = max(desired, 1)
        after = spec.scale_to_zero_after
        limit = max(self.settings.least_idle, self.hold) if after < 0 else after
        if self.at_rest(max(limit, spec.scale_down_delay)):
            desired = 0
        desired = min(max(desired, self.least), spec.max, seen.granted)
        hopeless = spec.expired and (not spec.initialized or self.least == 0) and seen.queued <= 0
        return 0 if hopeless else int(desired)


def decide_one(one: One) -> tuple[int, Memory]:
    """Return the replicas of one revision, and the stored state."""
    peak, until = one.panic()
    wanted = max(one.stable(one.seen.current), one.waiting(), one.crowded(), peak)
    slow_until = one.slow_until(wanted)
    held, width, began, newest, before = one.held()
    desired, since, below = one.delayed(one.limited(max(wanted, one.slow(), held)))
    return one.bounded(desired), Memory(
        until, peak, since, below, one.now - one.starting_for, slow_until, width, began, newest, before
    )


def decide_all(specs: Specs, seen: Observations, state: DeciderState, now: float) -> list[tuple[int, Memory]]:
    """Decide for every row."""
    rows = range(len(specs))
    return [decide_one(One(row_of(specs, i), row_of(seen, i), row_of(state, i), now, DecisionSettings())) for i in rows]
