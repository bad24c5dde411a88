"""How surely two rates differ: evidence that may be looked at as often as one likes. Pure, over arrays.

Of the stable version `x_s` of `n_s` requests failed (or were slow), of the candidate `x_c` of `n_c`; d is the
difference of the true rates, candidate less stable. For every pair of rates (p_s, p_c) the ratio

    mixture(counts) / (p_s^x_s (1 - p_s)^(n_s - x_s) p_c^x_c (1 - p_c)^(n_c - x_c))

is a martingale that starts at 1 if those are the true rates, so that it ever reaches 1/α with a chance of at most α
(Ville's inequality). The evidence against "d is at most (at least) m" is the least logarithm of the ratio over all
pairs that satisfy it; those lie on d = m, unless the counts themselves satisfy it: then there is no evidence.

- Mixtures over a beta prior: Robbins (1970), "Statistical methods related to the law of the iterated logarithm";
  Howard, Ramdas, McAuliffe, Sekhon (2021), "Time-uniform, nonparametric, nonasymptotic confidence sequences".
- The least over d = m is a cubic's root: Miettinen, Nurminen (1985), "Comparative analysis of two rates", appendix.

Assumed: requests fail independently of each other, and within the counts both versions meet the same conditions. What
counts as slow is found in the stable version's own answers at each look, which no theorem here covers: that latency
keeps the promise as well is simulated (`loadtests.judge`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

PRIOR_HIT, PRIOR_MISS = 0.5, 4.5
"""Beta prior of a rate: Jeffreys' 1/2 towards zero, a mean of 10 %, as rates of errors and of slow answers are small.

Any prior keeps the promise on errors; against Beta(1/2, 1/2) this one saves about one unit of evidence per rate.
"""

_TINY = 1e-100
"""In place of a zero that is divided by; its cube is still a number."""

_log_gamma = np.frompyfunc(math.lgamma, 1, 1)


@dataclass(frozen=True, slots=True)
class Pair:
    """Counts of both versions: hits and requests, floats or arrays of one shape."""

    stable_hits: Array
    stable: Array
    candidate_hits: Array
    candidate: Array

    @classmethod
    def of(cls, stable: tuple[float, float], candidate: tuple[float, float]) -> Pair:
        """From (hits, requests) of each."""
        return cls(*(np.asarray(value, dtype=np.float64) for value in (*stable, *candidate)))

    @property
    def difference(self) -> Array:
        """Of the rates that were seen; a version without requests counts as free of hits."""
        return np.asarray(_rate(self.candidate_hits, self.candidate) - _rate(self.stable_hits, self.stable))


def evidence_above(pair: Pair, margin: Array | float) -> Array:
    """Logarithm of the evidence that the difference is larger than `margin` (from -1 to 1); 0 when there is none."""
    numerator = _log_mixture(pair.stable_hits, pair.stable) + _log_mixture(pair.candidate_hits, pair.candidate)
    return _evidence(pair, margin, numerator, pair.difference > margin)


def evidence_below(pair: Pair, margin: Array | float) -> Array:
    """Logarithm of the evidence that the difference is smaller than `margin` (from -1 to 1); 0 when there is none.

    Half of the mixture says that both rates are one, as they mostly are: that costs one prior instead of two.
    """
    apart = _log_mixture(pair.stable_hits, pair.stable) + _log_mixture(pair.candidate_hits, pair.candidate)
    same = _log_mixture(pair.stable_hits + pair.candidate_hits, pair.stable + pair.candidate)
    return _evidence(pair, margin, np.logaddexp(apart, same) - math.log(2.0), pair.difference < margin)


def evidence_of_rate(hits: Array, requests: Array, rate: float) -> Array:
    """Logarithm of the evidence that one version's true rate is larger than `rate` (0 to 1); 0 when there is none."""
    likelihood = _times_log(hits, np.asarray(rate)) + _times_log(requests - hits, np.asarray(1.0 - rate))
    found = _log_mixture(hits, requests) - likelihood
    return np.where(_rate(hits, requests) > rate, np.maximum(found, 0.0), 0.0)


def _rate(hits: Array, requests: Array) -> Array:
    return hits / np.where(requests > 0.0, requests, 1.0)


def _evidence(pair: Pair, margin: Array | float, numerator: Array, beyond: NDArray[np.bool_]) -> Array:
    found = numerator - _largest_likelihood(pair, np.asarray(margin, dtype=np.float64))
    return np.where(beyond, np.maximum(found, 0.0), 0.0)


def _log_mixture(hits: Array, requests: Array) -> Array:
    """Logarithm of the chance of one sequence with so many hits, its rate drawn from the prior."""
    return _log_beta(PRIOR_HIT + hits, PRIOR_MISS + requests - hits) - _log_beta(PRIOR_HIT, PRIOR_MISS)


def _log_beta(a: Array | float, b: Array | float) -> Array:
    return np.asarray(_log_gamma(a) + _log_gamma(b) - _log_gamma(np.add(a, b)), dtype=np.float64)


def _largest_likelihood(pair: Pair, margin: Array) -> Array:
    """Logarithm of the likelihood of the counts, the largest of all pairs of rates that differ by `margin`."""
    stable = _stable_rate(pair, margin)
    candidate = np.clip(stable + margin, 0.0, 1.0)
    return (
        _times_log(pair.stable_hits, stable)
        + _times_log(pair.stable - pair.stable_hits, 1.0 - stable)
        + _times_log(pair.candidate_hits, candidate)
        + _times_log(pair.candidate - pair.candidate_hits, 1.0 - candidate)
    )


def _stable_rate(pair: Pair, margin: Array) -> Array:
    """The stable version's rate at that largest likelihood: the score's root, a cubic in it (Miettinen, Nurminen)."""
    x, n = pair.stable_hits, pair.stable
    total = np.maximum(n + pair.candidate, _TINY)
    left = pair.candidate_hits - pair.candidate * margin
    inner = margin * (1.0 - margin)
    square = -(x + n * (1.0 - 2.0 * margin) + left + pair.candidate) / (3.0 * total)
    linear = (x * (1.0 - 2.0 * margin) - n * inner + left) / total
    constant = x * inner / total
    v = square**3 - linear * square / 2.0 + constant / 2.0
    u = np.copysign(np.sqrt(np.maximum(square**2 - linear / 3.0, _TINY**2)), v)
    angle = (math.pi + np.arccos(np.clip(v / u**3, -1.0, 1.0))) / 3.0
    root = 2.0 * u * np.cos(angle) - square
    return np.asarray(np.clip(root, np.maximum(0.0, -margin), np.minimum(1.0, 1.0 - margin)))


def _times_log(count: Array, rate: Array) -> Array:
    """count · log(rate), and 0 for 0 · log 0."""
    with np.errstate(divide="ignore"):
        return np.where(count > 0.0, count * np.log(np.where(count > 0.0, rate, 1.0)), 0.0)
