"""The decider once more in plain Python, one revision at a time: what the arrays have to agree with."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from autoscaler.config import Scaling
from autoscaler.scaling.table import Columns, Observations, Specs, State


@dataclass
class Memory:
    panic_until: float
    panic_peak: int
    below_since: float
    below_peak: int


def row_of(table: Columns, row: int) -> Any:
    """One row as an object with plain values."""
    values = {one.name: getattr(table, one.name)[row].item() for one in fields(table)}
    return type("Row", (), values)()


@dataclass
class One:
    """One revision at one moment."""

    spec: Any
    seen: Any
    state: Any
    now: float
    settings: Scaling

    def replicas_for(self, work: float) -> int:
        if math.isnan(work):
            return 0
        needed = math.ceil(work / (self.spec.target * self.spec.utilization) - self.settings.tolerance)
        return int(min(max(needed, 0), 1e9))

    @property
    def old(self) -> bool:
        window = self.spec.stable_window
        return bool(self.seen.age >= window and self.seen.covered >= self.settings.enough_coverage * window)

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

    def waiting(self) -> int:
        seen = self.seen
        if seen.queued <= 0:
            return 0
        service_time = seen.service_time if seen.service_time > 0 else self.settings.assumed_service_time
        left = max(seen.queued - seen.starting_seconds * self.spec.target / service_time, 0.0)
        backlog = left * min(1.0, service_time / self.settings.drain_within)
        full = seen.ready * self.spec.target * self.spec.utilization
        return max(self.replicas_for((full if math.isnan(seen.panic) else seen.panic) + backlog), 1)

    def crowded(self) -> int:
        return self.replicas_for(self.seen.crowd) if self.seen.crowd > 0 else 0

    def panic(self) -> tuple[int, float]:
        trusted = not self.seen.adopted or self.old or self.seen.queued > 0 or self.seen.crowd > 0
        wants = min(max(self.replicas_for(self.seen.panic), self.waiting(), self.crowded()), self.spec.max)
        over = trusted and wants >= self.settings.panic_threshold * max(self.seen.ready, 1)
        before = self.now < self.state.panic_until
        peak = 0
        if over or before:
            peak = max(self.state.panic_peak if before else 0, wants if trusted else 0)
        kept = self.state.panic_until if before else -math.inf
        return peak, self.now + self.spec.stable_window if over else kept

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

    def bounded(self, desired: int) -> int:
        seen, spec = self.seen, self.spec
        if seen.current > 0 or seen.queued > 0:
            desired = max(desired, 1)
        if seen.queued <= 0 and seen.active <= 0 and seen.idle >= max(spec.scale_to_zero_after, spec.scale_down_delay):
            desired = 0
        desired = min(max(desired, self.least), spec.max)
        hopeless = spec.expired and (not spec.initialized or self.least == 0) and seen.queued <= 0
        return 0 if hopeless else int(desired)


def decide_one(one: One) -> tuple[int, Memory]:
    """Replicas of one revision, and what is kept."""
    peak, until = one.panic()
    wanted = max(one.stable(one.seen.current), one.waiting(), one.crowded(), peak)
    desired, since, below = one.delayed(one.limited(wanted))
    return one.bounded(desired), Memory(until, peak, since, below)


def decide_all(specs: Specs, seen: Observations, state: State, now: float) -> list[tuple[int, Memory]]:
    """Every row."""
    rows = range(len(specs))
    return [decide_one(One(row_of(specs, i), row_of(seen, i), row_of(state, i), now, Scaling())) for i in rows]
