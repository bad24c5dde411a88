"""Percent arithmetic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from serving.makers.targets import first_traffic, floating, largest_remainder, merged, pinned
from tests.serving.models import VARIANTS, model


@given(st.integers(0, 100), st.lists(st.integers(0, 100), min_size=1, max_size=20))
def test_parts_sum_to_the_whole_and_are_less_than_one_away_from_their_share(total: int, weights: list[int]) -> None:
    parts = largest_remainder(total, weights)
    assert sum(parts) == total
    assert all(part >= 0 for part in parts)
    if sum(weights):
        for part, weight in zip(parts, weights, strict=True):
            assert abs(part - total * weight / sum(weights)) < 1


def test_of_equal_fractions_the_earlier_is_rounded_up() -> None:
    assert largest_remainder(100, [1, 1, 1]) == [34, 33, 33]
    assert largest_remainder(10, [60, 40]) == [6, 4]
    assert largest_remainder(1, [50, 50]) == [1, 0]
    assert largest_remainder(100, [0, 0]) == [100, 0]
    assert largest_remainder(5, []) == []


def test_a_tag_leads_to_the_largest_variant() -> None:
    targets = floating(model(variants=VARIANTS), 10, "blue")
    assert [(one["configurationName"], one["percent"], one.get("tag")) for one in targets] == [
        ("magika-a100", 6, "blue"),
        ("magika-v100", 4, None),
    ]


def test_untagged_targets_of_one_revision_add_up_and_empty_ones_go() -> None:
    targets = [pinned("a", 30), pinned("b", 0), pinned("a", 70), pinned("a", 0, "blue")]
    assert merged(targets) == (pinned("a", 100), pinned("a", 0, "blue"))


def test_a_first_deploy_sends_everything_to_the_latest() -> None:
    assert first_traffic(model(canaryTrafficPercent=10)) == ({"latestRevision": True, "percent": 100},)
