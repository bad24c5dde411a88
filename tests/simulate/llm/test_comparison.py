"""Test the comparison of policies at the same share of late requests."""

from __future__ import annotations

import math

import pytest

from loadtests.simulate.llm.comparison import Comparison, Curve, Point, compare, cost_at


def points(*figures: tuple[float, float]) -> list[Point]:
    """Return points from replica-seconds and shares of late requests."""
    return [Point(1.0, cost, late, 0.0, 0.0) for cost, late in figures]


def test_replica_seconds_between_two_points_are_interpolated() -> None:
    assert cost_at(0.03, points((100.0, 0.05), (300.0, 0.01))) == pytest.approx(200.0)


def test_points_that_another_one_beats_do_not_count() -> None:
    assert cost_at(0.03, points((100.0, 0.05), (150.0, 0.2), (300.0, 0.01), (900.0, 0.03))) == pytest.approx(200.0)


@pytest.mark.parametrize("late", [0.005, 0.06])
def test_there_is_no_cost_beyond_the_curve(late: float) -> None:
    assert cost_at(late, points((100.0, 0.05), (300.0, 0.01))) is None


def test_a_policy_with_nine_tenths_of_the_replicas_is_clearly_better() -> None:
    base, ours = points((100.0, 0.1), (300.0, 0.001)), points((90.0, 0.1), (270.0, 0.001))
    found = compare(Curve(ours, [ours]), Curve(base, [base]))
    assert found.ratio == pytest.approx(0.9)
    assert found.seeds == pytest.approx([0.9])
    assert found.is_clear


def test_one_worse_seed_or_no_common_level_is_not_clear() -> None:
    assert not Comparison({0.01: 0.9}, [0.7, 1.1]).is_clear
    nothing = Comparison({}, [])
    assert math.isnan(nothing.ratio)
    assert not nothing.is_clear
