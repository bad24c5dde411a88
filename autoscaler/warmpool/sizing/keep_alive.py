"""The value of keeping an idle model warm for longer. Pure, over all models at once.

Keeping a model warm from one age of its idle time to a later one costs the expected idle seconds. It gains the chance
that the next request comes meanwhile and does not wait. The best ratio of gain to cost over later ages is the *worth*
of an age: saved starts per pod-second (the Gittins index for stopping). At a given price for a saved start, the model
is kept as long as its worth is at least that price. No other set of keep-alives with the same bill saves more starts,
which is why one price applies to all models (Lagrange).

Shapes: a row for each model; a column for each edge of `idle_history.EDGES` (`until`, `spent`), or for each bucket
between two edges (`worth`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from autoscaler.warmpool.sizing.idle_history import EDGES, FloatArray

PRIOR: Final = 1.0
"""Weight, in idle times, of the average histogram of all models in each model's own, for models with few idle times."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The effect of a keep-alive up to each edge in one idle time: the chance `until` that the next request has come by
    then, and the average pod-seconds `spent`. `worth` is non-increasing over buckets, in requests per pod-second.
    """

    until: FloatArray
    spent: FloatArray
    worth: FloatArray

    def at(self, held: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return chance and pod-seconds of each model at keep-alives of `held` seconds, interpolated between edges."""
        rows = np.arange(len(self.until))
        last = len(EDGES) - 1
        upper = np.clip(np.searchsorted(EDGES, held, side="left"), 1, last)
        width = EDGES[upper] - EDGES[upper - 1]
        share = np.clip((held - EDGES[upper - 1]) / width, 0.0, 1.0)
        lower_chance, upper_chance = self.until[rows, upper - 1], self.until[rows, upper]
        chance = lower_chance + share * (upper_chance - lower_chance)
        # survivors decrease linearly within a bucket, so the pod-seconds are a parabola
        survive = 1.0 - 0.5 * (lower_chance + chance)
        return chance, self.spent[rows, upper - 1] + share * width * survive

    def edges(self, price: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return, by row, the last edge up to which the worth is at least the price (requests per pod-second)."""
        return np.asarray(np.count_nonzero(self.worth >= price[:, None], axis=1), np.int64)


def outlook(counts: FloatArray) -> Outlook:
    """Return the outlook of models with these histories (`idle_history.counts_of`)."""
    shares = _blended(counts)
    until = np.zeros((len(counts), len(EDGES)))
    np.cumsum(shares[:, :-1], axis=1, out=until[:, 1:])
    np.clip(until, 0.0, 1.0, out=until)
    survive = 1.0 - 0.5 * (until[:, :-1] + until[:, 1:])
    spent = np.zeros_like(until)
    np.cumsum(survive * np.diff(EDGES), axis=1, out=spent[:, 1:])
    return Outlook(until, spent, _worth(until, spent))


def _blended(counts: FloatArray) -> FloatArray:
    """Return the shares of idle times by bucket: the model's own, blended with `PRIOR` of the average."""
    totals = counts.sum(axis=1, keepdims=True)
    known = totals[:, 0] > 0.0
    usual = (counts[known] / totals[known]).mean(axis=0) if known.any() else np.zeros(counts.shape[1])
    blended: FloatArray = (counts + PRIOR * usual) / (totals + PRIOR)
    return blended


def _worth(until: FloatArray, spent: FloatArray) -> FloatArray:
    """Return the best ratio of gain to cost from each edge to any later one, made non-increasing."""
    buckets = until.shape[1] - 1
    worth = np.zeros((len(until), buckets))
    for first in range(buckets):
        gain = until[:, first + 1 :] - until[:, first, None]
        cost = spent[:, first + 1 :] - spent[:, first, None]
        worth[:, first] = np.max(gain / np.maximum(cost, 1e-9), axis=1)
    return np.minimum.accumulate(worth, axis=1)
