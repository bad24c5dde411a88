"""The delay of a Deployment's scale after a claim."""

from __future__ import annotations

import pytest

from autoscaler.reconciler.pending_scale import CLAIM_FIRST, LONGEST, PendingScale
from clusters.base.objects import Key

ONE, TWO = Key("default", "one-00001"), Key("default", "two-00001")


def test_cold_replicas_are_scaled_at_once() -> None:
    pending = PendingScale()
    assert (pending.replicas(ONE), pending.delay(ONE, 10.0)) == (0, 0)
    pending.record(ONE, 3, 10.0, served=False)
    assert (pending.replicas(ONE), pending.delay(ONE, 10.0)) == (3, 0)


def test_a_claim_has_a_moment_for_itself() -> None:
    pending = PendingScale()
    pending.record(ONE, 1, 10.0, served=True)
    assert pending.delay(ONE, 10.0) == pytest.approx(CLAIM_FIRST)
    assert pending.delay(ONE, 10.0 + CLAIM_FIRST) <= 0
    assert pending.replicas(ONE) == 1
    pending.forget(ONE)
    assert (pending.replicas(ONE), pending.delay(ONE, 10.0)) == (0, 0)


def test_other_revisions_claims_come_first_too_but_not_for_ever() -> None:
    pending, now = PendingScale(), 10.0
    pending.record(ONE, 1, now, served=True)
    while pending.delay(ONE, now) > 0:
        now += CLAIM_FIRST / 2
        pending.record(TWO, 1, now, served=True)
    assert now - 10.0 == pytest.approx(LONGEST, abs=CLAIM_FIRST)


def test_one_that_starts_cold_besides_is_scaled_at_once() -> None:
    pending = PendingScale()
    pending.record(ONE, 1, 10.0, served=True)
    pending.record(ONE, 3, 10.01, served=False)
    assert (pending.replicas(ONE), pending.delay(ONE, 10.01)) == (3, 0)
