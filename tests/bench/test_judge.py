"""Test simulated rollouts: few with a seed here, 10 000 of each world with `python -m loadtests.judge`."""

from __future__ import annotations

import numpy as np
import pytest

from clusters.base.latency_buckets import bucket_of
from loadtests.judge.adversary import ATTACKS, Attack, effect_of, errors_of_crash
from loadtests.judge.simulation import Outcomes, RolloutSimulation, Tallies, World, verdicts
from serving.reconciler.rollout.judging.bounds import Array
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.judge import judge
from serving.reconciler.rollout.judging.verdict import JudgedStep
from serving.types.rollout import Judge, Rollout

ROLLOUTS = 300
EQUAL, NOISY = World(), World(0.05, 0.05)


def run(world: World, rate: float, rollout: Rollout | None = None, longest: float = 1800.0) -> Outcomes:
    return RolloutSimulation(world, rollout or Rollout(), rate, ROLLOUTS, seed=5).run(longest)


@pytest.mark.parametrize(
    "world", [EQUAL, NOISY, World(sigma=1.0), World(slower=1.2), World(outage=0.1), World(pauses=0.05)]
)
def test_a_version_that_is_as_good_is_not_rolled_back(world: World) -> None:
    found = run(world, 100.0)
    assert found.rolled_back <= 0.01
    assert found.promoted >= 0.99


def test_at_little_traffic_a_version_is_held_rather_than_judged() -> None:
    found = run(NOISY, 1.0, longest=600.0)
    assert found.rolled_back <= 0.01
    assert found.promoted == 0.0


def test_a_version_half_as_slow_again_is_not_promoted() -> None:
    assert run(World(slower=1.5), 100.0).promoted <= 0.01


@pytest.mark.parametrize("rate", [10.0, 100.0])
def test_a_version_with_five_percent_of_errors_is_not_promoted(rate: float) -> None:
    found = run(World(0.001, 0.05), rate)
    assert found.promoted <= 0.01
    assert found.rolled_back >= 0.99


@pytest.mark.parametrize("world", [World(0.001, 0.2), World(slower=3.0)])
def test_a_plainly_bad_version_is_failed_within_two_intervals(world: World) -> None:
    found = run(world, 500.0)
    assert found.rolled_back == 1.0
    assert found.seconds.max() <= 2 * Judge().interval


def test_promotion_without_traffic_passes_bad_versions() -> None:
    promote = Rollout(on_insufficient_traffic="promote")
    assert run(World(0.001, 0.05), 1.0, promote).promoted > 0.9


FAILING = "bodies on which either version fails"
"""With half of all requests, they leave nothing to compare with: the rollout is held until they end."""


@pytest.mark.parametrize("attacks", [*((one,) for one in ATTACKS), ATTACKS], ids=lambda attacks: attacks[-1].what)
def test_an_adversary_with_half_of_all_requests_changes_no_verdict(attacks: tuple[Attack, ...]) -> None:
    def under_attack(world: World) -> Outcomes:
        return RolloutSimulation(world, Rollout(), 10.0, 50, 7, attacks).run(1800.0)

    good, bad, slow = map(under_attack, (EQUAL, World(0.001, 0.05), World(slower=3.0)))
    assert (good.rolled_back, bad.promoted, slow.promoted) == (0.0, 0.0, 0.0)
    decided = (good.promoted, bad.rolled_back, slow.rolled_back)
    if attacks[0].what == FAILING and len(attacks) == 1:
        assert decided == (0.0, 0.0, 0.0)
    else:
        assert min(decided) >= 0.9


def test_a_process_ended_by_an_attack_counts_only_if_it_served_the_split() -> None:
    assert (errors_of_crash(0), errors_of_crash(1), errors_of_crash(100)) == (0, 1, 1)


def test_an_attack_counts_by_the_servers_own_rules() -> None:
    chances = np.array([0.25, 0.75])
    found = {one.what: effect_of(one, 0.1, chances, bucket_of(0.05)) for one in ATTACKS}
    for one in ATTACKS:
        effect = found[one.what]
        counts = effect.errors + effect.answered.sum() + effect.left.sum()
        refused = one.status is not None and one.status < 500
        assert counts == pytest.approx(0.0 if one.to is not None or refused else 1.0), one.what
    assert found["valid bodies"].errors == pytest.approx(0.1)
    assert found["callers that leave at once"].left.sum() == pytest.approx(1.0)


def test_the_simulated_judge_is_the_judge() -> None:
    random = np.random.default_rng(11)
    stable, candidate = (_some(random, 250) for _ in range(2))
    rule, decisions = Judge(), set()
    for stage in (JudgedStep(10, 3, True), JudgedStep(50, 3, True), JudgedStep(100, 3, True)):
        fails, passes = verdicts(rule, stable, candidate, stage, np.ones(250, dtype=np.bool_))
        for row in range(0, 250, 2):
            verdict = judge(rule, _counts(stable, row), _counts(candidate, row), stage)
            assert (verdict.decision == "fail", verdict.decision == "pass") == (fails[row], passes[row])
            decisions.add(verdict.decision)
    assert decisions == {"wait", "hold", "pass", "fail"}


def _some(random: np.random.Generator, rows: int) -> Tallies:
    """Counts of all sizes, with few and many errors, latencies in 30 buckets."""
    requests: Array = np.floor(10.0 ** random.uniform(0.0, 4.0, rows))
    requests[:10] = 0.0
    errors = random.binomial(requests.astype(int), random.choice([0.0, 0.001, 0.03, 0.2, 0.6], rows)).astype(np.float64)
    bells = np.exp(-(((np.arange(30.0) - random.choice([8.0, 9.0, 14.0], (rows, 1))) / 5.0) ** 2))
    latency = random.multinomial((requests - errors).astype(int), bells / bells.sum(axis=1, keepdims=True))
    return Tallies(requests, errors, latency.astype(np.float64))


def _counts(tallies: Tallies, row: int) -> Counts:
    latency = {bucket: int(count) for bucket, count in enumerate(tallies.latency[row]) if count}
    return Counts(int(tallies.requests[row]), int(tallies.errors[row]), latency)
