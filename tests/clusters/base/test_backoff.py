"""Delays of the exponential back-off: growth, bounds and jitter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.backoff import Backoff

uniform = st.floats(0.0, 1.0, exclude_max=True)


def test_delays_double_up_to_the_largest() -> None:
    backoff = Backoff(first=1.0, largest=10.0)
    assert [backoff.delay(attempt) for attempt in range(6)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


@given(st.integers(0, 10**30), uniform)
def test_every_delay_is_within_its_bounds(attempt: int, chance: float) -> None:
    backoff = Backoff(first=0.02, largest=30.0, jitter=(0.9, 1.1))
    exact, jittered = backoff.delay(attempt), backoff.delay(attempt, lambda: chance)
    assert 0.02 <= exact <= 30.0
    assert 0.9 * exact <= jittered <= 1.1 * exact


@given(st.integers(0, 2000))
def test_delays_never_shrink(attempt: int) -> None:
    backoff = Backoff(first=0.5, largest=300.0, factor=2.6)
    assert backoff.delay(attempt) <= backoff.delay(attempt + 1)


def test_jitter_spans_its_whole_range() -> None:
    backoff = Backoff(first=4.0, largest=4.0, jitter=(0.5, 1.5))
    chances = iter([0.0, 0.5, 0.75])
    assert [backoff.delay(0, lambda: next(chances)) for _ in range(3)] == [2.0, 4.0, 5.0]


def test_a_first_delay_of_zero_stays_zero() -> None:
    assert Backoff(first=0.0, largest=10.0).delay(10**6) == 0.0


@pytest.mark.parametrize(
    ("first", "largest", "factor", "jitter"),
    [
        (-1.0, 1.0, 2.0, (1.0, 1.0)),
        (2.0, 1.0, 2.0, (1.0, 1.0)),
        (1.0, 2.0, 0.5, (1.0, 1.0)),
        (1.0, 2.0, 2.0, (1.1, 0.9)),
        (float("nan"), 2.0, 2.0, (1.0, 1.0)),
    ],
)
def test_impossible_back_offs_are_refused(
    first: float, largest: float, factor: float, jitter: tuple[float, float]
) -> None:
    with pytest.raises(ValueError, match="invalid"):
        Backoff(first, largest, factor, jitter)


def test_negative_attempts_are_refused() -> None:
    with pytest.raises(ValueError, match="count from 0"):
        Backoff(1.0, 2.0).delay(-1)
