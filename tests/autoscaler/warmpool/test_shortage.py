"""The chance that no member is free."""

from __future__ import annotations

import heapq
import itertools
import random

import pytest

from autoscaler.warmpool.sizing.shortage import chance_of_none, chances_of_none, peakedness_of, slope


@pytest.mark.parametrize(
    ("size", "load", "chance"), [(0, 3.0, 1.0), (1, 1.0, 0.5), (2, 1.0, 0.2), (10, 5.0, 0.018385), (5, 0.0, 0.0)]
)
def test_the_chances_are_those_of_erlangs_table(size: int, load: float, chance: float) -> None:
    assert chance_of_none(size, load) == pytest.approx(chance, rel=1e-4)


def test_a_pool_watched_for_long_is_empty_as_often() -> None:
    source, refills, now, missed = random.Random(1), [0.0] * 4, 0.0, 0
    for _ in range(20_000):
        now += source.expovariate(0.1)
        if refills[0] <= now:
            heapq.heapreplace(refills, now + 30.0)
        else:
            missed += 1
    assert missed / 20_000 == pytest.approx(chance_of_none(4, 3.0), rel=0.1)


def test_starts_in_crowds_of_two_need_twice_the_members() -> None:
    assert chance_of_none(4, 4.0, peakedness=2.0) == pytest.approx(chance_of_none(2, 2.0))


@pytest.mark.parametrize("peakedness", [1.0, 1.7, 3.0])
def test_each_further_member_is_of_less_use(peakedness: float) -> None:
    chances = list(itertools.islice(chances_of_none(6.0, peakedness), 30))
    gains = [before - after for before, after in itertools.pairwise(chances)]
    assert all(gain >= 0.0 for gain in gains)
    assert chances[0] == 1.0
    assert chances[-1] < 0.01


@pytest.mark.parametrize(("size", "load", "peakedness"), [(1, 0.5, 1.0), (6, 4.0, 1.0), (6, 4.0, 1.5), (9, 20.0, 3.0)])
def test_the_slope_is_the_difference_that_a_little_more_load_makes(size: int, load: float, peakedness: float) -> None:
    step = 1e-5
    more, less = (chance_of_none(size, load + sign * step, peakedness) for sign in (1, -1))
    chance = chance_of_none(size, load, peakedness)
    assert slope(size, load, peakedness, chance) == pytest.approx((more - less) / (2 * step), rel=0.05)


def test_without_members_or_starts_there_is_nothing_to_take_away() -> None:
    assert slope(0, 3.0, 1.0, 1.0) == 0.0
    assert slope(3, 0.0, 1.0, 0.0) == 0.0


def test_independent_starts_have_no_peaks_and_batches_have() -> None:
    source = random.Random(2)
    times = sorted(source.uniform(0.0, 30_000.0) for _ in range(3_000))
    assert peakedness_of(times, 30.0, 0.0, 30_000.0) == pytest.approx(1.0, abs=0.15)
    batches = sorted(time for time in source.sample(times, 600) for _ in range(5))
    assert peakedness_of(batches, 30.0, 0.0, 30_000.0) == pytest.approx(5.0, rel=0.2)


def test_what_was_watched_for_a_moment_counts_as_independent() -> None:
    assert peakedness_of([1.0, 1.0, 1.0], 30.0, 0.0, 100.0) == 1.0
    assert peakedness_of([], 30.0, 0.0, 10_000.0) == 1.0
