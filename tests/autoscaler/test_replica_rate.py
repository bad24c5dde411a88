"""Fault A4: bounds on the load that a replica reports, compared with that of the others."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.metrics.replica_rate import LEAST_OTHERS, OUTLIER, ReplicaRate, limit_outliers, rate_between
from autoscaler.metrics.stat import Sample

SLOTS = 4.0


def claims(*rates: float) -> list[ReplicaRate]:
    return [ReplicaRate(rate, served=rate, requests=1.0, busy=True) for rate in rates]


def rates(*said: float) -> list[float]:
    return [one.rate for one in limit_outliers(claims(*said), SLOTS)]


@pytest.mark.bad_input("scrape-lies")
def test_one_among_three_others_is_cut_to_three_times_their_median() -> None:
    assert rates(2.0, 3.0, 4.0, 64.0) == [2.0, 3.0, 4.0, 9.0]


def test_nobody_is_cut_below_its_own_slots() -> None:
    assert rates(0.0, 0.0, 0.0, 4.0) == [0.0, 0.0, 0.0, 4.0]
    assert rates(0.0, 0.0, 0.0, 64.0) == [0.0, 0.0, 0.0, 4.0]


@pytest.mark.parametrize("said", [(64.0,), (1.0, 64.0), (1.0, 1.0, 64.0)])
def test_two_others_are_too_few_to_say_who_is_wrong(said: tuple[float, ...]) -> None:
    assert rates(*said) == list(said)


def test_a_burst_that_all_replicas_feel_is_believed() -> None:
    assert rates(40.0, 50.0, 60.0, 64.0) == [40.0, 50.0, 60.0, 64.0]


def test_what_it_served_and_what_waits_in_it_is_cut_too() -> None:
    liar = ReplicaRate(40.0, served=80.0, requests=1.0, busy=True, stays=60.0, waits=True)
    honest = [ReplicaRate(1.0, 1.0, 1.0, busy=True, stays=2.0)] * 3
    assert limit_outliers([*honest, liar], SLOTS)[3] == ReplicaRate(4.0, 8.0, 1.0, busy=True, stays=6.0, waits=True)


@given(st.lists(st.floats(0, 1e9), max_size=16), st.floats(0.01, 1e3))
def test_nobody_is_lifted_and_nobody_is_left_above_the_bound(said: list[float], slots: float) -> None:
    found = limit_outliers(claims(*said), slots)
    for index, (before, after) in enumerate(zip(said, found, strict=True)):
        others = [*said[:index], *said[index + 1 :]]
        most = max(slots, OUTLIER * statistics.median(others)) if len(others) >= LEAST_OTHERS else before
        assert after.rate == pytest.approx(min(before, most))
        assert after.served == pytest.approx(after.rate)


def test_times_that_do_not_pass_count_by_what_is_in_flight() -> None:
    before, now = Sample(10.0, 5.0, 1.0, 0.0, 0.0), Sample(10.0, 9.0, 2.0, 3.0, 0.0)
    assert rate_between(before, now, most=64.0) == ReplicaRate(3.0, 0.0, 1.0, busy=True)
