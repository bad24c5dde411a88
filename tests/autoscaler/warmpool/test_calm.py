"""When a pool may be filled again after claims."""

from __future__ import annotations

import pytest

from autoscaler.warmpool.calm import CALM, LONGEST, Calm


def test_nothing_is_waited_for_without_a_claim() -> None:
    assert Calm().left(10.0) == 0


def test_a_claim_is_given_a_moment_for_itself() -> None:
    calm = Calm()
    calm.claimed(10.0)
    assert calm.left(10.0) == CALM
    assert calm.left(10.1) == pytest.approx(CALM - 0.1)
    assert calm.left(10.0 + CALM) == 0
    assert calm.left(10.0 + CALM) == 0


def test_claims_all_the_time_hold_the_refill_up_for_a_while_only() -> None:
    calm, now = Calm(), 10.0
    calm.claimed(now)
    while calm.left(now):
        now += 0.05
        calm.claimed(now)
    assert now - 10.0 == pytest.approx(LONGEST, abs=0.06)
