"""Evidence that two rates differ: checked by brute force, by exact sums, and by streams with many interim looks."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from serving.reconciler.rollout.judging.bounds import Array, Pair, evidence_above, evidence_below

Evidence = Callable[[Pair, float], Array]
BOTH = pytest.mark.parametrize("evidence", [evidence_above, evidence_below])


def pair(stable: tuple[float, float], candidate: tuple[float, float]) -> Pair:
    return Pair.of(stable, candidate)


def log_likelihood(hits: int, requests: int, rate: Array) -> Array:
    """Of one sequence, -inf where it cannot be."""
    with np.errstate(divide="ignore", invalid="ignore"):
        hit = hits * np.log(rate) if hits else np.zeros_like(rate)
        miss = (requests - hits) * np.log1p(-rate) if requests > hits else np.zeros_like(rate)
    return np.asarray(hit + miss)


def log_mixture(hits: int, requests: int) -> float:
    def beta(a: float, b: float) -> float:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)

    return beta(0.5 + hits, 4.5 + requests - hits) - beta(0.5, 4.5)


def test_the_evidence_is_the_least_over_all_rates_that_satisfy_what_it_speaks_against() -> None:
    random = np.random.default_rng(7)
    grid = np.linspace(0.0, 1.0, 601)
    stable, candidate = np.meshgrid(grid, grid)
    for _ in range(60):
        n, m = (int(size) for size in random.integers(1, 400, 2))
        x, y = (
            int(random.binomial(n, random.choice([0.0, 0.05, 0.4]))),
            int(random.binomial(m, random.choice([0.0, 0.2]))),
        )
        margin = float(random.choice([0.0, 0.01, 0.1]))
        both = log_likelihood(x, n, stable) + log_likelihood(y, m, candidate)
        least = log_mixture(x, n) + log_mixture(y, m) - np.max(both[candidate <= stable + margin + 1e-12])
        found = float(evidence_above(pair((x, n), (y, m)), margin))
        if least > 0.5:  # the grid finds somewhat more than the least
            assert found == pytest.approx(least, abs=0.2 + 0.05 * least)
            assert found <= least + 1e-9
        else:
            assert found <= 0.5


@BOTH
@pytest.mark.parametrize(("rate", "margin"), [(0.02, 0.0), (0.1, 0.05), (0.4, 0.3), (0.0, 0.1)])
def test_at_the_very_margin_the_evidence_is_one_on_average_at_most(
    evidence: Evidence, rate: float, margin: float
) -> None:
    n, m = 40, 25
    x, y = np.meshgrid(np.arange(n + 1.0), np.arange(m + 1.0))
    ways = np.vectorize(lambda of, hits: math.comb(of, int(hits)))
    chances = ways(n, x) * rate**x * (1 - rate) ** (n - x) * ways(m, y)
    chances = chances * (rate + margin) ** y * (1 - rate - margin) ** (m - y)
    found = evidence(Pair(x, np.full_like(x, n), y, np.full_like(y, m)), margin)
    assert np.sum(chances) == pytest.approx(1.0)
    assert np.sum(chances * np.where(found > 0.0, np.exp(found), 0.0)) <= 1.0


@BOTH
def test_looking_after_every_batch_does_not_inflate_the_error(evidence: Evidence) -> None:
    random = np.random.default_rng(3)
    streams, alpha = 2000, 0.05
    counts = np.zeros((4, streams))
    crossed = np.zeros(streams, dtype=np.bool_)
    for _ in range(60):
        came = random.binomial(20, 0.03, streams), 20, random.binomial(10, 0.05, streams), 10
        counts += np.stack([np.broadcast_to(one, streams) for one in came])
        crossed |= evidence(Pair(*counts), 0.02) >= math.log(1 / alpha)
    assert crossed.mean() <= alpha


@pytest.mark.parametrize(("evidence", "hits"), [(evidence_above, 20), (evidence_below, 0)])
def test_more_of_the_same_is_more_evidence(evidence: Evidence, hits: int) -> None:
    found = [float(evidence(pair((1 * size, 100 * size), (hits * size, 100 * size)), 0.05)) for size in (1, 2, 8, 64)]
    assert 0.0 <= found[0] < found[1] < found[2] < found[3]


@BOTH
def test_without_requests_there_is_no_evidence(evidence: Evidence) -> None:
    assert float(evidence(pair((0, 0), (0, 0)), 0.01)) == 0.0


def test_a_candidate_that_cannot_be_so_bad_needs_no_stable_version() -> None:
    assert float(evidence_below(pair((0, 0), (0, 500)), 0.05)) > math.log(100)
    assert float(evidence_above(pair((0, 0), (500, 500)), 0.05)) == 0.0


def test_what_the_counts_contradict_is_infinitely_sure() -> None:
    assert float(evidence_below(pair((1, 10), (0, 10)), 1.0)) == math.inf
