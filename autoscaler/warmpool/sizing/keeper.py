"""What is known of all models' idle times, and the plan that is made of it: which to keep warm, for how long.

In memory only: a process that has just started keeps every model as its policy says (`usual`) until it has seen enough.
The simulator (`loadtests.simulate.fleet`) drives this very class.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import numpy as np

from autoscaler.warmpool.reasons import KeepReason, KeepRule
from autoscaler.warmpool.sizing.idle_history import IdleHistory, counts_of
from autoscaler.warmpool.sizing.keep_alive import outlook
from autoscaler.warmpool.sizing.planner import Balance, Models, PoolView, balance, budget_of

ENOUGH: Final = 20
"""Idle times of all models together before they are kept by another rule than their own policy."""
LEAST: Final = 10.0
"""s; no model is let go sooner after its work: fewer than ten readings prove little, and a start costs more."""
MOST: Final = 14_400.0
"""s (4 h); what nobody asked for since then is not kept by a budget that nobody else needs."""
REMEMBERED: Final = 8
"""Starts over which the number of requests that wait for the whole of one is averaged."""

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model to plan for, in seconds: its `usual` keep-alive, a `cold` start, a `claim` with the load; how long it has
    been `idle`, 0 while it works. One that is `fixed` is kept as usual, and is planned for as it is.
    """

    usual: float
    cold: float
    claim: float
    idle: float = 0.0
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """Seconds to keep a model warm after its work, and why."""

    seconds: float
    reason: KeepReason


@dataclass(frozen=True, slots=True)
class KeepPlan(Generic[K]):
    """A hold for each candidate, and what they and the pool come to; None while too little is known."""

    holds: Mapping[K, Hold]
    balance: Balance | None
    budget: float


@dataclass(slots=True)
class _Known:
    history: IdleHistory = field(default_factory=IdleHistory)
    cold_waiters: float = 1.0
    claim_waiters: float = 1.0


class Keeper(Generic[K]):
    """The idle times of models, by key."""

    def __init__(self) -> None:
        self._known: dict[K, _Known] = {}

    def __len__(self) -> int:
        """Models of which an idle time is known."""
        return len(self._known)

    def came(self, key: K, idle: float, busy: float) -> None:
        """A request came after `idle` seconds without any, before which there was work for `busy` seconds."""
        self._of(key).history.note(idle, busy)

    def began(self, key: K, watched: float) -> None:
        """The first request of all came, `watched` seconds after somebody began to look."""
        self._of(key).history.begin(watched)

    def started(self, key: K, seconds: float, waited: float, *, claimed: bool) -> None:
        """A start of so many seconds has ended, a claim or a cold one; those who waited did for `waited` seconds."""
        if seconds <= 0.0:
            return
        known, waiters = self._of(key), max(1.0, waited / seconds)
        if claimed:
            known.claim_waiters += (waiters - known.claim_waiters) / REMEMBERED
        else:
            known.cold_waiters += (waiters - known.cold_waiters) / REMEMBERED

    def forget(self, key: K) -> None:
        """The model is gone."""
        self._known.pop(key, None)

    def plan(self, candidates: Mapping[K, Candidate], pool: PoolView) -> KeepPlan[K]:
        """Holds for these models. They share the budget of their usual keep-alives with a pool of these limits, whose
        least members are paid for besides: somebody asked for them.
        """
        known = [self._known.get(key, _Known()) for key in candidates]
        seen = sum(float(one.history.counts.sum()) for one in known)
        if seen < ENOUGH:
            holds = {key: _as_usual(one, seen) for key, one in candidates.items()}
            return KeepPlan(holds, None, 0.0)
        models = _models(known, list(candidates.values()))
        budget = budget_of(models) + pool.least
        found = balance(models, pool, budget)
        return KeepPlan(dict(zip(candidates, _holds(known, models, found), strict=True)), found, budget)

    def _of(self, key: K) -> _Known:
        return self._known.setdefault(key, _Known())


def _models(known: list[_Known], candidates: list[Candidate]) -> Models:
    claim = np.array([one.claim for one in candidates])
    return Models(
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


def _holds(known: list[_Known], models: Models, found: Balance) -> list[Hold]:
    chances, _ = models.outlook.at(found.holds)
    seen = [round(float(one.history.counts.sum())) for one in known]
    return [
        _hold(*row, found.price)
        for row in zip(
            seen, found.holds.tolist(), chances.tolist(), (models.most == models.least).tolist(), strict=True
        )
    ]


def _hold(seen: int, seconds: float, chance: float, fixed: bool, price: float) -> Hold:
    values = {"seen": seen, "hold": seconds, "chance": chance, "price": price}
    rule = KeepRule.FIXED if fixed else KeepRule.WORTH if seen else KeepRule.LIKE_OTHERS
    return Hold(seconds, KeepReason(rule, values))


def _as_usual(candidate: Candidate, seen: float) -> Hold:
    values = {"seen": round(seen), "enough": ENOUGH, "hold": candidate.usual}
    return Hold(candidate.usual, KeepReason(KeepRule.USUAL, values))
