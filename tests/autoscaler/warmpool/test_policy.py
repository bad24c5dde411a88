"""The size of a pool, from measured starts."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from autoscaler.warmpool.reasons import PoolReason, PoolRule
from autoscaler.warmpool.sizing.arrivals import HORIZON, KEPT, Arrival, Arrivals, ClassKey
from autoscaler.warmpool.sizing.planner import Balance
from autoscaler.warmpool.sizing.policy import (
    LEAST_REFILL,
    Sizing,
    StartHistory,
    peak,
    refill_time,
    view_of,
    wanted_size,
)
from autoscaler.warmpool.spec import PoolSpec, read_spec

KEY = ClassKey("default", "c1")
LONG_AGO = -2 * HORIZON


def spec(**fields: Any) -> PoolSpec:
    return read_spec({"spec": {"min": 0, **fields}})


def history(*times: float, since: float = LONG_AGO, size_before: int = 0, claimed: bool = True) -> StartHistory:
    return StartHistory([Arrival(time, claimed) for time in times], since, size_before)


def rules(sizing: Sizing) -> list[PoolRule]:
    return [reason.rule for reason in sizing.reasons]


def test_a_size_that_was_set_is_the_size_whatever_arrives() -> None:
    sizing = wanted_size(spec(size=7, max=2), history(1, 2, 3), 5.0, 10.0)
    assert sizing == Sizing(7, (PoolReason(PoolRule.FIXED, {"size": 7}),))


def test_auto_is_the_most_starts_within_one_refill() -> None:
    sizing = wanted_size(spec(max=10), history(0, 1, 2, 100, 101, 500), 2.5, 1_000.0)
    assert sizing.size == 3
    assert rules(sizing) == [PoolRule.ARRIVALS]
    assert "3 starts came within one refill of 2.5 s in the last hour, 6 in total, 0 without a member" in str(
        sizing.reasons[0]
    )


def test_a_slow_refill_needs_more_members() -> None:
    starts = history(*range(0, 100, 10))
    assert wanted_size(spec(max=50), starts, 1.0, 1_000.0).size == 1
    assert wanted_size(spec(max=50), starts, 45.0, 1_000.0).size == 5


def test_auto_stays_between_min_and_max_and_says_so() -> None:
    many = wanted_size(spec(max=2), history(1, 1, 1), 5.0, 10.0)
    assert (many.size, rules(many)) == (2, [PoolRule.ARRIVALS, PoolRule.BOUNDS])
    none = wanted_size(spec(min=1), history(), 5.0, 10.0)
    assert (none.size, rules(none)) == (1, [PoolRule.QUIET, PoolRule.BOUNDS])


def test_a_plan_says_the_size_of_auto_and_no_other() -> None:
    planned = Balance(np.zeros(1), 3, 0.1, 0.02, 5.0, 1.0, 0.25)
    auto = wanted_size(spec(max=10), history(1, 1, 1, 1, 1), 5.0, 10.0, planned)
    assert (auto.size, rules(auto)) == (3, [PoolRule.PLAN])
    assert auto.reasons[0].message == (
        "360 starts an hour are expected, of which 2.0% find none of 3 members free; one more would save less than "
        "0.25 s of waiting per pod-second"
    )
    assert wanted_size(spec(size=7), history(), 5.0, 10.0, planned).size == 7
    assert rules(wanted_size(spec(max=2), history(), 5.0, 10.0, planned)) == [PoolRule.PLAN, PoolRule.BOUNDS]


@pytest.mark.parametrize(
    ("fields", "affordable", "limits"),
    [
        ({"min": 1, "max": 9}, None, (1, 9)),
        ({"min": 1, "max": 9}, 4, (1, 4)),
        ({"min": 3, "max": 9}, 2, (2, 2)),
        ({"size": 5, "max": 9}, None, (5, 5)),
        ({"size": 5}, 0, (0, 0)),
    ],
)
def test_the_planner_sees_the_limits_of_the_pool(
    fields: dict[str, Any], affordable: int | None, limits: tuple[int, int]
) -> None:
    view = view_of(spec(**fields), affordable, history(), 5.0, 10.0)
    assert (view.least, view.most) == limits


def test_the_planner_sees_the_starts_of_the_last_hour() -> None:
    starts = history(*(10.0 * number for number in range(1_000)), since=0.0)
    view = view_of(spec(), None, starts, 5.0, 10_000.0)
    assert view.seen == pytest.approx(0.1, rel=0.01)
    assert view.refill == 5.0
    assert view_of(spec(), None, history(), 5.0, 10_000.0).seen == 0.0


def test_the_first_hour_of_a_process_does_not_shrink_a_pool() -> None:
    seen = history(since=0.0, size_before=3)
    young = wanted_size(spec(), seen, 5.0, HORIZON - 1)
    assert (young.size, rules(young)) == (3, [PoolRule.QUIET, PoolRule.NEW])
    assert wanted_size(spec(), seen, 5.0, HORIZON).size == 0


def test_the_peak_agrees_with_a_plain_count() -> None:
    source = random.Random(1)
    for _ in range(200):
        times = sorted(source.uniform(0, 50) for _ in range(source.randrange(0, 30)))
        within = source.uniform(0.1, 20)
        plain = max((sum(first <= time <= first + within for time in times) for first in times), default=0)
        assert peak(times, within) == plain


@pytest.mark.parametrize(
    ("measured", "expected"), [([], 7.0), ([3.0], 3.0), ([2.0, 3.0, 600.0], 3.0), ([0.0, 0.0], LEAST_REFILL)]
)
def test_the_refill_is_the_usual_start_time(measured: list[float], expected: float) -> None:
    assert refill_time(measured, 7.0) == expected


def test_starts_of_more_than_an_hour_ago_are_forgotten() -> None:
    arrivals = Arrivals()
    arrivals.record(KEY, True, 0.0)
    arrivals.record(KEY, False, 100.0)
    assert arrivals.of(KEY, 101.0) == (Arrival(0.0, True), Arrival(100.0, False))
    assert arrivals.of(KEY, HORIZON + 1) == (Arrival(100.0, False),)
    assert arrivals.of(ClassKey("other", "c1"), 101.0) == ()


def test_memory_of_starts_is_bounded_in_length_and_in_classes() -> None:
    arrivals = Arrivals()
    for number in range(KEPT + 10):
        arrivals.record(KEY, True, float(number) / 10)
    assert len(arrivals.of(KEY, 300.0)) == KEPT
    for number, at in zip(range(50), itertools.count(1_000.0, 1_000.0), strict=False):
        arrivals.record(ClassKey("default", f"class-{number}"), True, at)
    assert len(arrivals) <= 4


def test_starts_go_along_with_a_pool_whose_template_changed() -> None:
    arrivals, after = Arrivals(), ClassKey("default", "c2")
    arrivals.record(KEY, True, 1.0)
    arrivals.record(after, False, 2.0)
    arrivals.carry_over(KEY, after)
    assert arrivals.of(after, 3.0) == (Arrival(1.0, True), Arrival(2.0, False))
    assert arrivals.of(KEY, 3.0) == ()


@pytest.mark.parametrize(
    "fields",
    [{"size": "many", "min": "x", "max": [], "maxAge": 5, "budget": "1"}, {"size": True, "maxAge": "-1s", "max": None}],
)
def test_what_cannot_be_read_counts_as_not_said(fields: dict[str, Any]) -> None:
    assert read_spec({"spec": fields}) == read_spec({})


def test_min_above_the_default_max_raises_it() -> None:
    assert (spec(min=9).least, spec(min=9).most) == (9, 9)
