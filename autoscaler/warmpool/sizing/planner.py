"""How long to keep each model warm, and how many free members its pool should have, for one bill: pure.

All models and the pool are paid from one budget: the pods that a fixed keep-alive (each model's own, `usual`) would
have on average. One *price*, in seconds of waiting for a pod-second, divides it: each model is kept warm as long as
that saves more waiting than the price (`keep_alive`), and the pool has each member that does (`shortage`). A pool makes
starts cheap, so it moves the budget from rare models' idle replicas to members that serve all of them.

    a start waits   claim seconds with a free member, cold seconds without; the chance of either follows from the size
    bill            idle replicas + the time of starts + members, in pods on average
    price           bisected until the bill is the budget; a rest, where steps are coarse, goes into the last step if a
                    part of it is of use

One price for all is Lagrange's rule for a sum of independent concave terms. What it saves: `loadtests.simulate.fleet`.
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
"""Seconds of waiting for a pod-second: the price is looked for between these two."""
HALVINGS: Final = 16
"""Of that range, by ratio: to 0.04 %."""
WORTHWHILE: Final = 0.5
"""Of the price: what a rest of the budget has to save at least. Requests that come every hour make steps in which all
is gained at the end; half of such a step is paid for nothing."""
ROUNDS: Final = 4
"""Starts follow from holds, holds from how often the pool is empty, that from starts: so often in turn."""


@dataclass(frozen=True, slots=True)
class Models:
    """Those that share a budget, a row each: what their idle times promise; `rates`, idle times that end a second;
    seconds of a `cold` start and of a `claim`; requests that wait for the whole of one (`cold_waiters`) or of the other
    (`claim_waiters`); keep-alives in s, the `usual`, the `least` and the `most`.
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
    serves: `seen` a second of late, and their `peakedness` (`shortage`).
    """

    least: int = 0
    most: int = 0
    refill: float = 5.0
    seen: float = 0.0
    peakedness: float = 1.0

    def load(self, starts: float) -> float:
        """Members that are missing on average at so many starts a second, or at those seen where they are more."""
        return max(starts, self.seen) * self.refill


@dataclass(frozen=True, slots=True)
class Balance:
    """What a plan comes to: `holds` in s by model, `size` of the pool; `starts` a second, `missed`, the share of them
    that finds no member; the `bill` in pods, `wait` in s of waiting a second, and the `price` that led here.
    """

    holds: FloatArray
    size: int
    starts: float
    missed: float
    bill: float
    wait: float
    price: float


def budget_of(models: Models) -> float:
    """Pods on average that the usual keep-alives would have idle or starting, without a pool."""
    return _settled(models, models.usual, 0, PoolView(), 0.0).bill


def balance(models: Models, pool: PoolView, budget: float) -> Balance:
    """The least waiting for that many pods on average."""
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


def _at_price(models: Models, pool: PoolView, price: float) -> Balance:
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


def _members(models: Models, pool: PoolView, starts: FloatArray, price: float) -> tuple[int, float]:
    """Free members at this price, and how often there is none."""
    load, expected = pool.load(float(starts.sum())), float(starts.sum()) * pool.refill
    more = load / expected if expected > 0.0 else 1.0
    gain = more * float(starts @ (_gain(models) + price * (models.cold - models.claim)))
    chances = chances_of_none(load, pool.peakedness)
    for size, (chance, following) in enumerate(itertools.pairwise(chances)):
        if size >= pool.most or (size >= pool.least and gain * (chance - following) < price):
            return size, chance
    raise AssertionError("the chances have no end")


def _settled(models: Models, holds: FloatArray, size: int, pool: PoolView, price: float) -> Balance:
    """What these holds and that many members come to."""
    chance, spent = models.outlook.at(holds)
    starts = models.rates * (1.0 - chance)
    missed = chance_of_none(size, pool.load(float(starts.sum())), pool.peakedness)
    bill = float(models.rates @ spent + starts @ _start_bill(models, missed)) + size
    wait = float(starts @ _wait(models, missed))
    return Balance(holds, size, float(starts.sum()), missed, bill, wait, price)


def _between(models: Models, pool: PoolView, under: Balance, over: Balance, budget: float) -> Balance:
    """Holds from those of `under` towards those of `over`, with the pool of `under`, up to the budget."""
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


def _wait(models: Models, missed: float) -> FloatArray:
    """Seconds that all who wait for a start of each model wait together, on average."""
    warm = models.claim * models.claim_waiters
    return warm + missed * _gain(models)


def _gain(models: Models) -> FloatArray:
    """Seconds of waiting that a free member saves a start of each model."""
    return np.maximum(models.cold * models.cold_waiters - models.claim * models.claim_waiters, 0.0)


def _start_bill(models: Models, missed: float) -> FloatArray:
    """Pod-seconds of a start, on average."""
    return models.claim + missed * (models.cold - models.claim)
