"""Compare one rate of both versions with the allowed and the harmful difference. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from serving.reconciler.rollout.judging.bounds import Array, Pair, evidence_above, evidence_below

Hits: TypeAlias = tuple[float, float]
"""(hits, requests) of one version."""

_SIZES: Array = 1e-4 * np.power(1.3, np.arange(36.0))
_MARGINS: Array = np.unique(np.clip(np.concatenate((-_SIZES, [0.0], _SIZES)), -1.0, 1.0))
"""Differences at which bounds are reported, 30 % apart. The decision itself is exact and does not use this grid."""
_NUMBERS: Array = np.power(1.15, np.arange(140.0))
"""Numbers of requests that are tried to find how many are needed: up to 3 · 10^8, 15 % apart."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The `allowed` difference of rates, the harmful one (`harm`), and the evidence needed to fail and to pass."""

    allowed: float
    harm: float
    to_fail: float
    to_pass: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Observed rates, bounds of their difference (candidate less stable), and the result.

    `needed` is the number of requests with which an equally good candidate passes; infinite when none suffices.
    """

    stable: float
    candidate: float
    lower: float
    upper: float
    fails: bool
    passes: bool
    needed: float


def compare(stable: Hits, to_fail: Hits, to_pass: Hits, limits: Limits, stable_share: float) -> Comparison:
    """Compare the candidate's hits with the stable version's.

    The candidate has two counts because of rounding: `to_fail` is rounded in its favour, `to_pass` is not.
    `stable_share` is the stable version's present share of the traffic.
    """
    strict, lenient = Pair.of(stable, to_pass), Pair.of(stable, to_fail)
    above = evidence_above(lenient, np.append(_MARGINS, limits.allowed)) >= limits.to_fail
    below = evidence_below(strict, np.append(_MARGINS, limits.harm)) >= limits.to_pass
    fails, passes = bool(above[-1]), bool(below[-1])
    lower = max(_MARGINS[above[:-1]], default=-1.0)
    upper = min(_MARGINS[below[:-1]], default=1.0)
    return Comparison(
        stable=_rate(stable),
        candidate=_rate(to_fail),
        lower=float(max(lower, limits.allowed) if fails else lower),
        upper=float(min(upper, limits.harm) if passes else upper),
        fails=fails,
        passes=passes,
        needed=_needed(stable, limits, stable_share),
    )


def _needed(stable: Hits, limits: Limits, stable_share: float) -> float:
    """Return the number of requests with which a candidate with the stable version's rate passes.

    Both versions get requests in proportion to their shares of the traffic.
    """
    if stable_share:
        of_stable: Array = _NUMBERS * (stable_share / (1.0 - stable_share))
    else:
        of_stable = np.full_like(_NUMBERS, stable[1])
    rate = _rate(stable)
    pair = Pair(of_stable * rate, of_stable, _NUMBERS * rate, _NUMBERS)
    enough = evidence_below(pair, limits.harm) >= limits.to_pass
    return math.ceil(_NUMBERS[int(np.argmax(enough))]) if enough.any() else math.inf


def _rate(hits: Hits) -> float:
    return hits[0] / hits[1] if hits[1] else 0.0
