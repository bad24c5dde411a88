"""The backoff between changes of a Model, and the retry schedule of failed events."""

from __future__ import annotations

import pytest

from eventing.backoff import FIRST_GAP, FIRST_WAIT, LARGEST_GAP, LONGEST_WAIT, MOST_ATTEMPTS, ChangeBackoff, wait_after


def test_after_quiet_a_model_is_changed_at_once() -> None:
    assert ChangeBackoff().wait("m", 100.0) == 0


def test_in_a_storm_every_gap_is_twice_the_one_before_up_to_a_largest() -> None:
    backoff, now, gaps = ChangeBackoff(), 0.0, []
    for _ in range(9):
        backoff.record("m", now)
        gaps.append(backoff.wait("m", now))
        now += gaps[-1]
    assert gaps == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert gaps[0] == FIRST_GAP and gaps[-1] == LARGEST_GAP


def test_after_quiet_the_first_gap_is_back() -> None:
    backoff = ChangeBackoff()
    for now in (0.0, 1.0, 3.0):
        backoff.record("m", now)
    assert backoff.wait("m", 3.0) == 4
    backoff.record("m", 11.5)
    assert backoff.wait("m", 11.5) == FIRST_GAP


def test_models_have_their_own_pace_and_quiet_ones_are_forgotten() -> None:
    backoff = ChangeBackoff()
    backoff.record("m", 0.0)
    assert backoff.wait("other", 0.0) == 0
    backoff.record("other", 1000.0)
    assert list(backoff._last) == ["other"]


def test_waits_grow_from_a_second_to_five_minutes_and_end() -> None:
    waits = [wait_after(attempts) for attempts in range(1, MOST_ATTEMPTS)]
    assert waits[0] == FIRST_WAIT
    assert waits[-1] == pytest.approx(LONGEST_WAIT)
    assert waits == sorted(wait for wait in waits if wait is not None)
    assert wait_after(MOST_ATTEMPTS) is None
