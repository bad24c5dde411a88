"""What it is worth to keep an idle model warm for longer: pure, over all models at once.

To keep a model warm from one age of its idle time to a later one costs the seconds that it is then likely to stay
idle for, and gains the chance that its next request comes meanwhile and need not wait. Gain by cost, at the best later
age, is the *worth* of an age: starts saved for a pod-second (the index of Gittins for stopping). At a price for a saved
start, keep it as long as the worth has not fallen below that price: then no other choice of keep-alives with the same
bill saves more starts, which is why one price holds for all models (Lagrange).

Shapes: a row for each model, a column for each edge of `idle_history.EDGES` (`until`, `spent`) or each bucket between
two of them (`worth`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from autoscaler.warmpool.sizing.idle_history import EDGES, FloatArray

PRIOR: Final = 1.0
"""Idle times that the usual ones of all models count for in each: what a model's first few do not tell yet."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a keep-alive up to each edge would do in one idle time: the chance `until` that the next request has come by
    then, and the pod-seconds `spent` on average. `worth` falls from bucket to bucket: requests by pod-second.
    """

    until: FloatArray
    spent: FloatArray
    worth: FloatArray

    def at(self, held: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Chance and pod-seconds of each model at keep-alives of `held` seconds, between edges by straight lines."""
        rows = np.arange(len(self.until))
        last = len(EDGES) - 1
        upper = np.clip(np.searchsorted(EDGES, held, side="left"), 1, last)
        width = EDGES[upper] - EDGES[upper - 1]
        share = np.clip((held - EDGES[upper - 1]) / width, 0.0, 1.0)
        lower_chance, upper_chance = self.until[rows, upper - 1], self.until[rows, upper]
        chance = lower_chance + share * (upper_chance - lower_chance)
        # the survivors fall in a straight line within a bucket, so that what is spent is a parabola
        survive = 1.0 - 0.5 * (lower_chance + chance)
        return chance, self.spent[rows, upper - 1] + share * width * survive

    def edges(self, price: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """By row the edge up to which it is worth at least the price (requests by pod-second) to keep the model."""
        return np.asarray(np.count_nonzero(self.worth >= price[:, None], axis=1), np.int64)


def outlook(counts: FloatArray) -> Outlook:
    """What histories (`idle_history.counts_of`) say of the next idle time of their models."""
    shares = _blended(counts)
    until = np.zeros((len(counts), len(EDGES)))
    np.cumsum(shares[:, :-1], axis=1, out=until[:, 1:])
    np.clip(until, 0.0, 1.0, out=until)
    survive = 1.0 - 0.5 * (until[:, :-1] + until[:, 1:])
    spent = np.zeros_like(until)
    np.cumsum(survive * np.diff(EDGES), axis=1, out=spent[:, 1:])
    return Outlook(until, spent, _worth(until, spent))


def _blended(counts: FloatArray) -> FloatArray:
    """Shares of idle times by bucket: those of the model, and `PRIOR` of what is usual among models."""
    totals = counts.sum(axis=1, keepdims=True)
    known = totals[:, 0] > 0.0
    usual = (counts[known] / totals[known]).mean(axis=0) if known.any() else np.zeros(counts.shape[1])
    blended: FloatArray = (counts + PRIOR * usual) / (totals + PRIOR)
    return blended


def _worth(until: FloatArray, spent: FloatArray) -> FloatArray:
    """The best of gain by cost from each edge to any later one, and never more than at the ages before it."""
    buckets = until.shape[1] - 1
    worth = np.zeros((len(until), buckets))
    for first in range(buckets):
        gain = until[:, first + 1 :] - until[:, first, None]
        cost = spent[:, first + 1 :] - spent[:, first, None]
        worth[:, first] = np.max(gain / np.maximum(cost, 1e-9), axis=1)
    return np.minimum.accumulate(worth, axis=1)
