"""The delay of a pool's refill after claims."""

from __future__ import annotations

import pytest

from autoscaler.warmpool.debounce import LONGEST, QUIET_TIME, Debounce


def test_nothing_is_waited_for_without_a_claim() -> None:
    assert Debounce().remaining(10.0) == 0


def test_a_claim_is_given_a_moment_for_itself() -> None:
    debounce = Debounce()
    debounce.record(10.0)
    assert debounce.remaining(10.0) == QUIET_TIME
    assert debounce.remaining(10.1) == pytest.approx(QUIET_TIME - 0.1)
    assert debounce.remaining(10.0 + QUIET_TIME) == 0
    assert debounce.remaining(10.0 + QUIET_TIME) == 0


def test_claims_all_the_time_hold_the_refill_up_for_a_while_only() -> None:
    debounce, now = Debounce(), 10.0
    debounce.record(now)
    while debounce.remaining(now):
        now += 0.05
        debounce.record(now)
    assert now - 10.0 == pytest.approx(LONGEST, abs=0.06)
