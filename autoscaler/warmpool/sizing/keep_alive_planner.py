"""The histories of idle times of all models, and the plan of keep-alives derived from them.

Histories are in memory only: a new process keeps every model for the time of its policy (`usual`) until it has enough
data. The simulator (`loadtests.simulate.fleet`) uses this class too.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import numpy as np

from autoscaler.warmpool.reasons import KeepReason, KeepRule
from autoscaler.warmpool.sizing.idle_history import IdleHistory, counts_of
from autoscaler.warmpool.sizing.keep_alive import outlook
from autoscaler.warmpool.sizing.planner import Balance, ModelTable, PoolView, balance, budget_of

ENOUGH: Final = 20
"""Idle times of all models together that a plan requires; before, models follow their own policies."""
LEAST: Final = 10.0
"""Seconds; minimum keep-alive: fewer than ten readings prove little, and a start costs more."""
MOST: Final = 14_400.0
"""Seconds (4 h); maximum keep-alive, even if the budget would allow more."""
REMEMBERED: Final = 8
"""Starts over which the number of requests waiting for one start is averaged."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model to plan for, in seconds: its `usual` keep-alive, a `cold` start, a `claim` with the load, and the present
    `idle` time, 0 while it works. A `fixed` one is kept for its usual time, which the plan takes into account.
    """

    usual: float
    cold: float
    claim: float
    idle: float = 0.0
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Seconds to keep a model warm after its work, and the reason."""

    seconds: float
    reason: KeepReason


@dataclass(frozen=True, slots=True)
class KeepPlan(Generic[K]):
    """A keep-alive for each candidate, and the balance of models and pool; None while data is insufficient."""

    holds: Mapping[K, KeepAlive]
    balance: Balance | None
    budget: float


@dataclass(slots=True)
class _Known:
    history: IdleHistory = field(default_factory=IdleHistory)
    cold_waiters: float = 1.0
    claim_waiters: float = 1.0


class KeepAlivePlanner(Generic[K]):
    """The idle times of models, by key."""

    def __init__(self) -> None:
        self._known: dict[K, _Known] = {}

    def __len__(self) -> int:
        """Return the number of models with a recorded idle time."""
        return len(self._known)

    def record_idle_time(self, key: K, idle: float, busy: float) -> None:
        """Record a request after `idle` seconds without any, which followed work of `busy` seconds."""
        self._of(key).history.record(idle, busy)

    def record_first_request(self, key: K, watched: float) -> None:
        """Record the first request, `watched` seconds after observation began."""
        self._of(key).history.record_first(watched)

    def record_start(self, key: K, seconds: float, waited: float, *, claimed: bool) -> None:
        """Record a completed start, by a claim or cold; its callers together waited for `waited` seconds."""
        if seconds <= 0.0:
            return
        known, waiters = self._of(key), max(1.0, waited / seconds)
        if claimed:
            known.claim_waiters += (waiters - known.claim_waiters) / REMEMBERED
        else:
            known.cold_waiters += (waiters - known.cold_waiters) / REMEMBERED

    def forget(self, key: K) -> None:
        """Delete a model that is gone."""
        self._known.pop(key, None)

    def plan(self, candidates: Mapping[K, Candidate], pool: PoolView) -> KeepPlan[K]:
        """Return keep-alives for these models. They share the budget of their usual keep-alives with the pool. The
        pool's minimum members are paid for in addition, because its spec requires them.
        """
        known = [self._known.get(key, _Known()) for key in candidates]
        seen = sum(float(one.history.counts.sum()) for one in known)
        if seen < ENOUGH:
            common = {"seen": round(seen), "enough": ENOUGH}
            holds = {
                key: KeepAlive(one.usual, KeepReason(KeepRule.USUAL, {**common, "hold": one.usual}))
                for key, one in candidates.items()
            }
            return KeepPlan(holds, None, 0.0)
        models = _models(known, list(candidates.values()))
        budget = budget_of(models) + pool.least
        found = balance(models, pool, budget)
        return KeepPlan(dict(zip(candidates, _holds(known, models, found), strict=True)), found, budget)

    def _of(self, key: K) -> _Known:
        return self._known.setdefault(key, _Known())


def _models(known: list[_Known], candidates: list[Candidate]) -> ModelTable:
    claim = np.array([one.claim for one in candidates])
    return ModelTable(
        outlook=outlook(counts_of([one.history for one in known])),
        rates=np.array([one.history.rate(found.idle) for one, found in zip(known, candidates, strict=True)]),
        cold=np.maximum(np.array([one.cold for one in candidates]), claim),
        claim=claim,
        cold_waiters=np.array([one.cold_waiters for one in known]),
        claim_waiters=np.array([one.claim_waiters for one in known]),
        usual=np.array([one.usual for one in candidates]),
        least=np.array([one.usual if one.fixed else max(LEAST, one.claim) for one in candidates]),
        most=np.array([one.usual if one.fixed else MOST for one in candidates]),
    )


def _holds(known: list[_Known], models: ModelTable, found: Balance) -> list[KeepAlive]:
    chances, _ = models.outlook.at(found.holds)
    fixed = (models.most == models.least).tolist()
    holds = []
    for one, seconds, chance, is_fixed in zip(known, found.holds.tolist(), chances.tolist(), fixed, strict=True):
        seen = round(float(one.history.counts.sum()))
        rule = KeepRule.FIXED if is_fixed else KeepRule.WORTH if seen else KeepRule.LIKE_OTHERS
        values = {"seen": seen, "hold": seconds, "chance": chance, "price": found.price}
        holds.append(KeepAlive(seconds, KeepReason(rule, values)))
    return holds
