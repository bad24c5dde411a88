"""When the Deployment follows a claim."""

from __future__ import annotations

import pytest

from autoscaler.reconciler.asked import CLAIM_FIRST, LONGEST, Asked
from clusters.base.objects import Key

ONE, TWO = Key("default", "one-00001"), Key("default", "two-00001")


def test_cold_replicas_are_scaled_at_once() -> None:
    asked = Asked()
    assert (asked.replicas(ONE), asked.left(ONE, 10.0)) == (0, 0)
    asked.ask(ONE, 3, 10.0, served=False)
    assert (asked.replicas(ONE), asked.left(ONE, 10.0)) == (3, 0)


def test_a_claim_has_a_moment_for_itself() -> None:
    asked = Asked()
    asked.ask(ONE, 1, 10.0, served=True)
    assert asked.left(ONE, 10.0) == pytest.approx(CLAIM_FIRST)
    assert asked.left(ONE, 10.0 + CLAIM_FIRST) <= 0
    assert asked.replicas(ONE) == 1
    asked.forget(ONE)
    assert (asked.replicas(ONE), asked.left(ONE, 10.0)) == (0, 0)


def test_other_revisions_claims_come_first_too_but_not_for_ever() -> None:
    asked, now = Asked(), 10.0
    asked.ask(ONE, 1, now, served=True)
    while asked.left(ONE, now) > 0:
        now += CLAIM_FIRST / 2
        asked.ask(TWO, 1, now, served=True)
    assert now - 10.0 == pytest.approx(LONGEST, abs=CLAIM_FIRST)


def test_one_that_starts_cold_besides_is_scaled_at_once() -> None:
    asked = Asked()
    asked.ask(ONE, 1, 10.0, served=True)
    asked.ask(ONE, 3, 10.01, served=False)
    assert (asked.replicas(ONE), asked.left(ONE, 10.01)) == (3, 0)
