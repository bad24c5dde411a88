"""One budget for keep-alives and members of the pool."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.warmpool.sizing.idle_history import EDGES, IdleHistory, counts_of
from autoscaler.warmpool.sizing.keep_alive import outlook
from autoscaler.warmpool.sizing.planner import ModelTable, PoolView, balance, budget_of
from autoscaler.warmpool.sizing.shortage import chance_of_none

NO_POOL = PoolView()


def random_models(means: list[float], *, usual: float = 60.0, seed: int = 1, **columns: Any) -> ModelTable:
    """Return models with independent requests, `means` seconds apart; a start takes 30 s, or 3 s with a member."""
    source, histories = np.random.default_rng(seed), []
    for mean in means:
        histories.append(IdleHistory())
        for idle in source.exponential(mean, 200).tolist():
            histories[-1].record(idle, 0.0)
    made = {
        "cold": 30.0, "claim": 3.0, "cold_waiters": 1.0, "claim_waiters": 1.0,
        "usual": usual, "least": 0.0, "most": float(EDGES[-1]), **columns,
    }  # fmt: skip
    return ModelTable(
        outlook=outlook(counts_of(histories)),
        rates=np.array([history.rate(0.0) for history in histories]),
        **{name: np.full(len(means), value) for name, value in made.items()},
    )


MANY = [5.0 * 1.1**number for number in range(60)]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(1.0, 5_000.0), min_size=1, max_size=12),
    st.integers(0, 20),
    st.floats(1.0, 60.0),
    st.floats(1.0, 4.0),
    st.floats(1.0, 600.0),
)
def test_the_bill_is_the_budget_at_most_unless_the_least_costs_more(
    means: list[float], most: int, refill: float, peakedness: float, usual: float
) -> None:
    models, pool = random_models(means, usual=usual), PoolView(0, most, refill, 0.0, peakedness)
    budget = budget_of(models)
    found = balance(models, pool, budget)
    none_kept = float(np.sum(models.rates * models.cold))
    assert found.bill <= max(budget, none_kept) + 1e-6
    assert 0 <= found.size <= most
    assert np.all(found.holds >= 0.0)


def test_a_pool_lets_wait_less_than_the_same_bill_without() -> None:
    models = random_models(MANY)
    budget = budget_of(models)
    alone, pooled = balance(models, NO_POOL, budget), balance(models, PoolView(0, 50, 30.0), budget)
    assert pooled.size > 0
    assert pooled.wait < 0.5 * alone.wait


def test_without_a_pool_it_still_lets_wait_less_than_one_keep_alive_for_all() -> None:
    models = random_models(MANY)
    chance, _ = models.outlook.at(models.usual)
    usual = float(np.sum(models.rates * (1.0 - chance) * models.cold))
    assert balance(models, NO_POOL, budget_of(models)).wait < 0.9 * usual


def test_one_model_alone_is_kept_as_usual() -> None:
    models = random_models([120.0], usual=100.0)
    assert balance(models, NO_POOL, budget_of(models)).holds[0] == pytest.approx(100.0, rel=0.05)


def test_what_is_asked_often_is_kept_longer_than_what_is_rare() -> None:
    models = random_models([20.0, 5_000.0])
    found = balance(models, NO_POOL, budget_of(models))
    assert found.holds[0] > 60.0 > found.holds[1]


def test_more_budget_never_lets_wait_longer() -> None:
    models, pool = random_models(MANY), PoolView(0, 50, 30.0)
    waits = [balance(models, pool, budget_of(models) * share).wait for share in (0.5, 0.75, 1.0, 1.5, 2.0)]
    assert all(more <= less * 1.01 for less, more in itertools.pairwise(waits))


def test_a_budget_for_everything_keeps_everything() -> None:
    found = balance(random_models([20.0, 500.0]), NO_POOL, 1e9)
    assert found.wait == pytest.approx(0.0, abs=1e-3)


def test_it_comes_near_the_best_of_all_choices() -> None:
    models, pool = random_models([30.0, 200.0, 1_500.0]), PoolView(0, 3, 30.0)
    budget = budget_of(models)
    edges = EDGES[::3]
    best = float("inf")
    for size in range(4):
        for held in itertools.product(edges, repeat=3):
            chance, spent = models.outlook.at(np.array(held))
            starts = models.rates * (1.0 - chance)
            missed = chance_of_none(size, float(starts.sum()) * pool.refill)
            start = models.claim + missed * (models.cold - models.claim)
            if float(models.rates @ spent + starts @ start) + size <= budget:
                best = min(best, float(starts @ start))
    assert balance(models, pool, budget).wait <= 1.1 * best


@pytest.mark.parametrize(("least", "most"), [(2, 2), (0, 3), (5, 9)])
def test_the_pool_stays_within_its_limits(least: int, most: int) -> None:
    models = random_models(MANY)
    assert least <= balance(models, PoolView(least, most, 30.0), budget_of(models) + least).size <= most


def test_starts_that_were_seen_count_where_they_are_more_than_expected() -> None:
    models = random_models(MANY)
    budget = budget_of(models)
    calm, busy = (balance(models, PoolView(0, 50, 30.0, seen), budget) for seen in (0.0, 0.6))
    assert busy.size > calm.size


def test_holds_stay_between_the_least_and_the_most() -> None:
    models = random_models([20.0, 5_000.0], least=10.0, most=90.0)
    found = balance(models, NO_POOL, budget_of(models))
    assert np.all((found.holds >= 10.0) & (found.holds <= 90.0))


def test_nothing_is_paid_for_half_of_the_way_to_the_next_request() -> None:
    history = IdleHistory()
    for _ in range(200):
        history.record(900.0, 0.0)
    models = random_models([900.0], usual=300.0)
    every_quarter = replace(models, outlook=outlook(counts_of([history])))
    found = balance(every_quarter, NO_POOL, budget_of(every_quarter))
    assert found.holds[0] < 60.0
    assert found.bill < budget_of(every_quarter)
