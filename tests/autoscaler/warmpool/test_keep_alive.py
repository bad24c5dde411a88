"""The value of keeping a model warm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.warmpool.sizing.idle_history import BUCKETS, EDGES, FloatArray, IdleHistory, bucket_of, counts_of
from autoscaler.warmpool.sizing.keep_alive import Outlook, outlook

HISTORIES = st.lists(
    st.dictionaries(st.integers(0, BUCKETS), st.floats(0.1, 100.0), min_size=1, max_size=6), min_size=1, max_size=3
)


def counted(histories: Sequence[dict[int, float]]) -> FloatArray:
    counts = np.zeros((len(histories), BUCKETS + 1))
    for row, history in enumerate(histories):
        for bucket, count in history.items():
            counts[row, bucket] = count
    return counts


def of_times(*times: float) -> Outlook:
    history = IdleHistory()
    for time in times:
        history.record(time, 0.0)
    return outlook(counts_of([history]))


def held(view: Outlook, price: float) -> float:
    return float(EDGES[view.edges(np.full(len(view.until), price))[0]])


@settings(max_examples=50, deadline=None)
@given(HISTORIES, st.floats(1e-5, 1.0))
def test_no_other_edge_is_better_at_the_price(histories: list[dict[int, float]], price: float) -> None:
    view = outlook(counted(histories))
    value = view.until - price * view.spent
    chosen = value[np.arange(len(value)), view.edges(np.full(len(value), price))]
    assert np.all(chosen >= value.max(axis=1) - 1e-9)


@settings(max_examples=50, deadline=None)
@given(HISTORIES, st.floats(0.0, float(EDGES[-1])))
def test_the_seconds_spent_are_the_integral_of_the_chance_to_be_idle_still(
    histories: list[dict[int, float]], seconds: float
) -> None:
    view = outlook(counted(histories))
    grid = np.unique(np.concatenate([EDGES[seconds > EDGES], [seconds]]))
    idle = np.array([1.0 - view.at(np.full(len(histories), age))[0] for age in grid])  # straight between edges
    integral = np.trapezoid(idle, grid, axis=0) if len(grid) > 1 else np.zeros(len(histories))
    assert view.at(np.full(len(histories), seconds))[1] == pytest.approx(integral, rel=1e-6, abs=1e-6)


def test_worth_agrees_with_a_plain_search() -> None:
    view = outlook(counted([{3: 5.0, 20: 2.0, 40: 9.0}]))
    least = float("inf")
    for first in range(BUCKETS):
        best = max(
            (view.until[0, later] - view.until[0, first]) / max(view.spent[0, later] - view.spent[0, first], 1e-9)
            for later in range(first + 1, BUCKETS + 1)
        )
        least = min(least, best)
        assert view.worth[0, first] == pytest.approx(least)


def test_independent_requests_are_worth_their_rate_whatever_the_age() -> None:
    source = np.random.default_rng(1)
    counts = np.zeros((1, BUCKETS + 1))
    for time in source.exponential(100.0, 100_000):
        counts[0, bucket_of(float(time))] += 1.0
    view = outlook(counts)
    assert view.worth[0, : bucket_of(100.0)] == pytest.approx(0.01, rel=0.1)


def test_a_model_that_is_asked_every_ten_minutes_is_kept_for_ten_minutes_or_not_at_all() -> None:
    view = of_times(*[600.0] * 50)
    assert held(view, 1 / 500.0) == 0.0
    assert 600.0 <= held(view, 1 / 800.0) <= 800.0


def test_a_burst_is_kept_to_its_end_and_the_night_after_it_is_not() -> None:
    view = of_times(*[2.0] * 90, *[30_000.0] * 10)
    assert 2.0 <= held(view, 0.01) <= 3.0


def test_a_model_without_idle_times_is_taken_for_what_is_usual() -> None:
    history = IdleHistory()
    for _ in range(20):
        history.record(40.0, 0.0)
    view = outlook(counts_of([history, IdleHistory()]))
    assert view.until[1] == pytest.approx(view.until[0], abs=1e-6)


def test_nothing_known_is_worth_nothing() -> None:
    view = outlook(np.zeros((2, BUCKETS + 1)))
    assert not view.worth.any()
    assert view.edges(np.array([1e-6, 1e-6])).tolist() == [0, 0]
