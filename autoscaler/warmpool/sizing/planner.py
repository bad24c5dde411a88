"""The keep-alive of each model and the free members of its pool, for one shared budget. Pure.

All models and the pool share one budget: the average Pods that fixed keep-alives (each model's own, `usual`) would
have. One *price*, in seconds of waiting per pod-second, divides it. Each model is kept warm as long as that saves more
waiting than the price (`keep_alive`), and the pool has each member that does (`shortage`). A pool makes starts cheap,
so it moves the budget from idle replicas of rarely used models to members that serve all of them.

    a start waits   claim seconds with a free member, cold seconds without; their chances follow from the size
    bill            idle replicas + the time of starts + members, in average Pods
    price           bisected until the bill equals the budget; with coarse steps, the rest of the budget goes into a
                    part of the last step, if that is useful

One price for all is Lagrange's rule for a sum of independent concave terms. The savings: `loadtests.simulate.fleet`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from autoscaler.warmpool.sizing.idle_history import EDGES, FloatArray
from autoscaler.warmpool.sizing.keep_alive import Outlook
from autoscaler.warmpool.sizing.shortage import chance_of_none, chances_of_none, slope

DEAREST: Final = 1e3
CHEAPEST: Final = 1e-6
"""Seconds of waiting per pod-second: range of the price."""
HALVINGS: Final = 16
"""Bisections of that range, by ratio: to 0.04 %."""
WORTHWHILE: Final = 0.5
"""Minimum savings of the budget's remainder, as a share of the price. Requests that come every hour make steps whose
whole gain is at the end, so that half of such a step gains nothing.
"""
ROUNDS: Final = 4
"""Iterations: starts follow from keep-alives, keep-alives from the pool's shortage, and that from starts."""


@dataclass(frozen=True, slots=True)
class ModelTable:
    """The models that share a budget, one row each: the outlook of their idle times; `rates`, idle times that end per
    second; seconds of a `cold` start and of a `claim`; requests that wait for a whole cold start (`cold_waiters`) or
    claim (`claim_waiters`); the `usual`, `least` and `most` keep-alives in seconds.
    """

    outlook: Outlook
    rates: FloatArray
    cold: FloatArray
    claim: FloatArray
    cold_waiters: FloatArray
    claim_waiters: FloatArray
    usual: FloatArray
    least: FloatArray
    most: FloatArray

    def __len__(self) -> int:
        return len(self.rates)


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool of `least` to `most` free members; a new one is ready after `refill` seconds. Of the starts that it
    serves: `seen`, recent starts per second, and their `peakedness` (`shortage`).
    """

    least: int = 0
    most: int = 0
    refill: float = 5.0
    seen: float = 0.0
    peakedness: float = 1.0

    def load(self, starts: float) -> float:
        """Return the average number of missing members at this rate of starts, or at the recent rate if that is
        higher.
        """
        return max(starts, self.seen) * self.refill


@dataclass(frozen=True, slots=True)
class Balance:
    """The result of a plan: `holds`, the keep-alives in seconds by model; `size` of the pool; `starts` per second;
    `missed`, the share of them without a free member; the `bill` in average Pods; `wait` in seconds of waiting per
    second; and the `price`.
    """

    holds: FloatArray
    size: int
    starts: float
    missed: float
    bill: float
    wait: float
    price: float


def budget_of(models: ModelTable) -> float:
    """Return the average Pods that the usual keep-alives would have idle or starting, without a pool."""
    return _settled(models, models.usual, 0, PoolView(), 0.0).bill


def balance(models: ModelTable, pool: PoolView, budget: float) -> Balance:
    """Return the least waiting for that many average Pods."""
    low, high = math.log(CHEAPEST), math.log(DEAREST)
    over, under = _at_price(models, pool, CHEAPEST), _at_price(models, pool, DEAREST)
    if over.bill <= budget:
        return over
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        found = _at_price(models, pool, math.exp(middle))
        if found.bill > budget:
            low, over = middle, found
        else:
            high, under = middle, found
    return _between(models, pool, under, over, budget)


def _at_price(models: ModelTable, pool: PoolView, price: float) -> Balance:
    size, missed, crowd = pool.least, 0.0 if pool.most else 1.0, 0.0
    for _ in range(ROUNDS):
        saved = _wait(models, missed) + crowd
        edges = models.outlook.edges(price / (saved + price * _start_bill(models, missed)))
        holds = np.clip(EDGES[edges], models.least, models.most)
        chance, _ = models.outlook.at(holds)
        starts = models.rates * (1.0 - chance)
        size, missed = _members(models, pool, starts, price)
        load = pool.load(float(starts.sum()))
        crowd = float(starts @ _gain(models)) * slope(size, load, pool.peakedness, missed) * pool.refill
    return _settled(models, holds, size, pool, price)


def _members(models: ModelTable, pool: PoolView, starts: FloatArray, price: float) -> tuple[int, float]:
    """Return the free members at this price, and the chance that none is free."""
    load, expected = pool.load(float(starts.sum())), float(starts.sum()) * pool.refill
    more = load / expected if expected > 0.0 else 1.0
    gain = more * float(starts @ (_gain(models) + price * (models.cold - models.claim)))
    chances = chances_of_none(load, pool.peakedness)
    for size, (chance, following) in enumerate(itertools.pairwise(chances)):
        if size >= pool.most or (size >= pool.least and gain * (chance - following) < price):
            return size, chance
    raise AssertionError("the chances are infinite")


def _settled(models: ModelTable, holds: FloatArray, size: int, pool: PoolView, price: float) -> Balance:
    """Return the balance of these keep-alives and members."""
    chance, spent = models.outlook.at(holds)
    starts = models.rates * (1.0 - chance)
    missed = chance_of_none(size, pool.load(float(starts.sum())), pool.peakedness)
    bill = float(models.rates @ spent + starts @ _start_bill(models, missed)) + size
    wait = float(starts @ _wait(models, missed))
    return Balance(holds, size, float(starts.sum()), missed, bill, wait, price)


def _between(models: ModelTable, pool: PoolView, under: Balance, over: Balance, budget: float) -> Balance:
    """Interpolate keep-alives from `under` towards `over`, with the pool of `under`, up to the budget."""
    low, high, best = 0.0, 1.0, under
    for _ in range(HALVINGS):
        share = 0.5 * (low + high)
        holds = under.holds + share * (over.holds - under.holds)
        found = _settled(models, holds, under.size, pool, under.price)
        if found.bill > budget:
            high = share
        else:
            low, best = share, found
    saved, paid = under.wait - best.wait, best.bill - under.bill
    return best if saved >= WORTHWHILE * under.price * paid else under


def _wait(models: ModelTable, missed: float) -> FloatArray:
    """Return the average seconds that all callers of one start of each model wait together."""
    warm = models.claim * models.claim_waiters
    return warm + missed * _gain(models)


def _gain(models: ModelTable) -> FloatArray:
    """Return the seconds of waiting that a free member saves a start of each model."""
    return np.maximum(models.cold * models.cold_waiters - models.claim * models.claim_waiters, 0.0)


def _start_bill(models: ModelTable, missed: float) -> FloatArray:
    """Return the average pod-seconds of a start."""
    return models.claim + missed * (models.cold - models.claim)
