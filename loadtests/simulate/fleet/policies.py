"""The policies of a simulated fleet: the product's planner, and a fixed keep-alive for comparison."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from autoscaler.warmpool.sizing.arrivals import HORIZON
from autoscaler.warmpool.sizing.keep_alive_planner import Candidate, KeepAlivePlanner, KeepPlan
from autoscaler.warmpool.sizing.planner import PoolView
from autoscaler.warmpool.sizing.shortage import peakedness_of
from loadtests.simulate.fleet.simulation import FleetTimes


@dataclass(slots=True)
class FixedKeepAlive:
    """Keep every model warm for `keep` seconds, with a constant pool of `members`."""

    keep: float
    members: int = 0
    interval: float = math.inf

    def replan(self, now: float) -> int:
        """Return the constant number of members."""
        return self.members

    def keep_alive(self, model: int) -> float:
        """Return the constant keep-alive."""
        return self.keep

    def record_work_end(self, model: int, until: float) -> None:
        """Ignore the event."""

    def record_idle_time(self, model: int, idle: float, busy: float) -> None:
        """Ignore the event."""

    def record_first_request(self, model: int, now: float) -> None:
        """Ignore the event."""

    def record_start_begin(self, now: float) -> None:
        """Ignore the event."""

    def record_start(self, model: int, seconds: float, waited: float, *, claimed: bool) -> None:
        """Ignore the event."""


@dataclass(slots=True)
class PlannedKeepAlive:
    """The product's planner for `models` models, with an empty history.

    The budget is the cost of a keep-alive of `usual` seconds. The pool has at most `most` members (0: no pool).
    """

    models: int
    times: FleetTimes
    usual: float
    most: int
    interval: float = 60.0
    _planner: KeepAlivePlanner[int] = field(default_factory=KeepAlivePlanner)
    _plan: KeepPlan[int] | None = None
    _starts: deque[float] = field(default_factory=deque)
    _idle_from: dict[int, float] = field(default_factory=dict)

    def replan(self, now: float) -> int:
        """Plan again, as the autoscaler does every `interval` seconds."""
        candidates = {
            model: Candidate(self.usual, self.times.cold, self.times.claim, self._idle(model, now))
            for model in range(self.models)
        }
        plan = self._plan = self._planner.plan(candidates, self._pool(now))
        return 0 if plan.balance is None else plan.balance.size

    def _pool(self, now: float) -> PoolView:
        while self._starts and self._starts[0] < now - HORIZON:
            self._starts.popleft()
        since = max(0.0, now - HORIZON)
        rate = len(self._starts) / (now - since) if now > since else 0.0
        refill = self.times.cold
        return PoolView(0, self.most, refill, rate, peakedness_of(list(self._starts), refill, since, now))

    def record_start_begin(self, now: float) -> None:
        """Record a start for the pool's size."""
        self._starts.append(now)

    def keep_alive(self, model: int) -> float:
        """Return the keep-alive of the last plan."""
        return self.usual if self._plan is None else self._plan.holds[model].seconds

    def record_work_end(self, model: int, until: float) -> None:
        """Record the end of the current work."""
        self._idle_from[model] = until

    def record_idle_time(self, model: int, idle: float, busy: float) -> None:
        """Record an idle time."""
        self._planner.record_idle_time(model, idle, busy)

    def record_first_request(self, model: int, now: float) -> None:
        """Record the first request."""
        self._planner.record_first_request(model, now)

    def record_start(self, model: int, seconds: float, waited: float, *, claimed: bool) -> None:
        """Record a completed start."""
        self._planner.record_start(model, seconds, waited, claimed=claimed)

    def _idle(self, model: int, now: float) -> float:
        return max(0.0, now - self._idle_from.get(model, 0.0))
