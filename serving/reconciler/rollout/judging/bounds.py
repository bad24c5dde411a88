"""Evidence that two rates differ, valid at any number of interim looks (a sequential test). Pure, over arrays.

`x_s` of `n_s` requests to the stable version failed (or were slow), and `x_c` of `n_c` to the candidate. d is the
difference of the true rates, candidate less stable. For every pair of rates (p_s, p_c) the ratio

    mixture(counts) / (p_s^x_s (1 - p_s)^(n_s - x_s) p_c^x_c (1 - p_c)^(n_c - x_c))

is a martingale that starts at 1 if those are the true rates. So the chance that it ever reaches 1/α is at most α
(Ville's inequality). The evidence against "d is at most (at least) m" is the minimum of the logarithm of the ratio over
all pairs that satisfy it. The minimum is on d = m, unless the counts themselves satisfy it: then there is no evidence.

- Mixtures over a beta prior: Robbins (1970), "Statistical methods related to the law of the iterated logarithm";
  Howard, Ramdas, McAuliffe, Sekhon (2021), "Time-uniform, nonparametric, nonasymptotic confidence sequences".
- The minimum over d = m is the root of a cubic: Miettinen, Nurminen (1985), "Comparative analysis of two rates",
  appendix.

Assumptions: requests fail independently of each other, and both versions meet the same conditions within the counts.
The limit of slow answers is estimated from the stable version's own answers at each look, which these theorems do not
cover. Simulations show that the error rates hold for latency as well (`loadtests.judge`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

PRIOR_HIT, PRIOR_MISS = 0.5, 4.5
"""Beta prior of a rate: Jeffreys' 1/2 at zero, and a mean of 10 %, since rates of errors and slow answers are small.

The error rates hold with any prior. Compared with Beta(1/2, 1/2), this one saves about one unit of evidence per rate.
"""

_TINY = 1e-100
"""Replaces a divisor of 0. Its cube is still representable."""

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
        """Make a pair from (hits, requests) of each version."""
        return cls(*(np.asarray(value, dtype=np.float64) for value in (*stable, *candidate)))

    @property
    def difference(self) -> Array:
        """Return the difference of the observed rates; a version without requests has the rate 0."""
        return np.asarray(_rate(self.candidate_hits, self.candidate) - _rate(self.stable_hits, self.stable))


def evidence_above(pair: Pair, margin: Array | float) -> Array:
    """Return the logarithm of the evidence that the difference exceeds `margin` (from -1 to 1); 0 without evidence."""
    numerator = _log_mixture(pair.stable_hits, pair.stable) + _log_mixture(pair.candidate_hits, pair.candidate)
    return _evidence(pair, margin, numerator, pair.difference > margin)


def evidence_below(pair: Pair, margin: Array | float) -> Array:
    """Return the logarithm of the evidence that the difference is below `margin` (from -1 to 1); 0 without evidence.

    Half of the mixture assumes that both rates are equal, as they usually are: that costs one prior instead of two.
    """
    apart = _log_mixture(pair.stable_hits, pair.stable) + _log_mixture(pair.candidate_hits, pair.candidate)
    same = _log_mixture(pair.stable_hits + pair.candidate_hits, pair.stable + pair.candidate)
    return _evidence(pair, margin, np.logaddexp(apart, same) - math.log(2.0), pair.difference < margin)


def evidence_of_rate(hits: Array, requests: Array, rate: float) -> Array:
    """Return the logarithm of the evidence that a version's true rate exceeds `rate` (0 to 1); 0 without evidence."""
    likelihood = _times_log(hits, np.asarray(rate)) + _times_log(requests - hits, np.asarray(1.0 - rate))
    found = _log_mixture(hits, requests) - likelihood
    return np.where(_rate(hits, requests) > rate, np.maximum(found, 0.0), 0.0)


def _rate(hits: Array, requests: Array) -> Array:
    return hits / np.where(requests > 0.0, requests, 1.0)


def _evidence(pair: Pair, margin: Array | float, numerator: Array, beyond: NDArray[np.bool_]) -> Array:
    found = numerator - _largest_likelihood(pair, np.asarray(margin, dtype=np.float64))
    return np.where(beyond, np.maximum(found, 0.0), 0.0)


def _log_mixture(hits: Array, requests: Array) -> Array:
    """Return the log probability of one sequence with these counts, with a rate drawn from the prior."""
    return _log_beta(PRIOR_HIT + hits, PRIOR_MISS + requests - hits) - _log_beta(PRIOR_HIT, PRIOR_MISS)


def _log_beta(a: Array | float, b: Array | float) -> Array:
    return np.asarray(_log_gamma(a) + _log_gamma(b) - _log_gamma(np.add(a, b)), dtype=np.float64)


def _largest_likelihood(pair: Pair, margin: Array) -> Array:
    """Return the largest log likelihood of the counts over all pairs of rates that differ by `margin`."""
    stable = _stable_rate(pair, margin)
    candidate = np.clip(stable + margin, 0.0, 1.0)
    return (
        _times_log(pair.stable_hits, stable)
        + _times_log(pair.stable - pair.stable_hits, 1.0 - stable)
        + _times_log(pair.candidate_hits, candidate)
        + _times_log(pair.candidate - pair.candidate_hits, 1.0 - candidate)
    )


def _stable_rate(pair: Pair, margin: Array) -> Array:
    """Return the stable version's rate at the largest likelihood: the root of the score (Miettinen, Nurminen)."""
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
    """Return count · log(rate), with 0 for 0 · log 0."""
    with np.errstate(divide="ignore"):
        return np.where(count > 0.0, count * np.log(np.where(count > 0.0, rate, 1.0)), 0.0)
