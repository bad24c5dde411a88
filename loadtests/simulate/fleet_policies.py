"""The policies that a simulated fleet is run with: the planner of the product, and what it is compared with."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from autoscaler.warmpool.sizing.arrivals import HORIZON
from autoscaler.warmpool.sizing.keeper import Candidate, Keeper, KeepPlan
from autoscaler.warmpool.sizing.planner import PoolView
from autoscaler.warmpool.sizing.shortage import peakedness_of
from loadtests.simulate.fleet_run import Times


@dataclass(slots=True)
class Fixed:
    """Every model is kept for `keep` seconds, beside a pool of `members`."""

    keep: float
    members: int = 0
    look: float = math.inf

    def replan(self, now: float) -> int:
        """Always the same."""
        return self.members

    def hold(self, model: int) -> float:
        """Always the same."""
        return self.keep

    def worked(self, model: int, until: float) -> None:
        """Learns nothing."""

    def came(self, model: int, idle: float, busy: float) -> None:
        """Learns nothing."""

    def began(self, model: int, now: float) -> None:
        """Learns nothing."""

    def begins(self, now: float) -> None:
        """Learns nothing."""

    def started(self, model: int, seconds: float, waited: float, *, claimed: bool) -> None:
        """Learns nothing."""


@dataclass(slots=True)
class Planned:
    """The product's own: for `models` models, with the bill of a keep-alive of `usual` seconds, and up to `most`
    members (0: no pool). Learns from an empty history on.
    """

    models: int
    times: Times
    usual: float
    most: int
    look: float = 60.0
    _keeper: Keeper[int] = field(default_factory=Keeper)
    _plan: KeepPlan[int] | None = None
    _starts: deque[float] = field(default_factory=deque)
    _idle_from: dict[int, float] = field(default_factory=dict)

    def replan(self, now: float) -> int:
        """As the autoscaler does, every `look` seconds."""
        candidates = {
            model: Candidate(self.usual, self.times.cold, self.times.claim, self._idle(model, now))
            for model in range(self.models)
        }
        plan = self._plan = self._keeper.plan(candidates, self._pool(now))
        return 0 if plan.balance is None else plan.balance.size

    def _pool(self, now: float) -> PoolView:
        while self._starts and self._starts[0] < now - HORIZON:
            self._starts.popleft()
        since = max(0.0, now - HORIZON)
        rate = len(self._starts) / (now - since) if now > since else 0.0
        refill = self.times.cold
        return PoolView(0, self.most, refill, rate, peakedness_of(list(self._starts), refill, since, now))

    def begins(self, now: float) -> None:
        """What the pool sees of it."""
        self._starts.append(now)

    def hold(self, model: int) -> float:
        """By the last plan."""
        return self.usual if self._plan is None else self._plan.holds[model].seconds

    def worked(self, model: int, until: float) -> None:
        """Its work ends at `until`, as far as is known."""
        self._idle_from[model] = until

    def came(self, model: int, idle: float, busy: float) -> None:
        """Into its history."""
        self._keeper.came(model, idle, busy)

    def began(self, model: int, now: float) -> None:
        """Into its history."""
        self._keeper.began(model, now)

    def started(self, model: int, seconds: float, waited: float, *, claimed: bool) -> None:
        """Into its history."""
        self._keeper.started(model, seconds, waited, claimed=claimed)

    def _idle(self, model: int, now: float) -> float:
        return max(0.0, now - self._idle_from.get(model, 0.0))
