"""Requests that hang, and the rules that keep `onInsufficientTraffic: promote` from passing a step."""

from __future__ import annotations

import pytest

from clusters.base.latency_buckets import bucket_of
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.hanging import (
    LEAST_AGE,
    TIMES_SLOWER,
    hanging,
    hanging_age,
    unanswered,
    with_hanging,
)

ALLOWED = 0.01
GOOD = Counts(100, 0, {-32: 100})
LATE, NEW = bucket_of(120.0), bucket_of(0.05)


def age() -> float:
    return hanging_age(GOOD, 0.95)


def test_the_age_follows_from_the_stable_versions_latency() -> None:
    assert age() == LEAST_AGE
    slow = Counts(10, 0, {bucket_of(60.0): 10})
    assert hanging_age(slow, 0.95) == pytest.approx(TIMES_SLOWER * 60.0, rel=0.1)
    assert hanging_age(Counts(), 0.95) == LEAST_AGE


def test_a_request_counts_as_an_error_from_that_age() -> None:
    counts = Counts(10, 1, {-32: 9}, pending={NEW: 5, LATE: 3})
    assert hanging(counts, age()) == 3
    failed = with_hanging(counts, age())
    assert (failed.requests, failed.errors) == (13, 4)


@pytest.mark.parametrize(
    ("stable", "candidate", "why"),
    [
        (GOOD, Counts(), ""),  # nobody asked
        (GOOD, Counts(1, 0, {-32: 1}), ""),
        (GOOD, Counts(5, 4, {-32: 1}), ""),  # one good answer: the judge's evidence decides
        (GOOD, Counts(pending={NEW: 1}), "no request to the candidate succeeded: 0 failed, 1 in flight"),
        (GOOD, Counts(pending={LATE: 551}), "551 in flight, the oldest for about 12"),
        (GOOD, Counts(3, 3), "no request to the candidate succeeded: 3 failed"),
        (GOOD, Counts(0, 0, {0: 4}, left=4), "no request to the candidate succeeded"),
        (GOOD, Counts(5, 0, {-32: 5}, pending={LATE: 2}), "2 requests to the candidate hang"),
        (Counts(5, 0, {-32: 5}, pending={LATE: 2}), Counts(5, 0, {-32: 5}, pending={LATE: 2}), ""),
        (GOOD, Counts(refused=7), "the candidate refused all 7 requests (4xx), the stable version 0 of 100"),
        (Counts(100, 0, {-32: 100}, refused=100), Counts(refused=3), ""),  # by chance
        (Counts(100, 0, {-32: 100}, refused=100), Counts(refused=9), "the candidate refused all 9 requests"),
        (Counts(refused=50), Counts(refused=9), ""),  # callers that both versions refuse
    ],
)
def test_what_speaks_against_a_promotion_for_want_of_traffic(stable: Counts, candidate: Counts, why: str) -> None:
    found = unanswered(stable, candidate, hanging_age(stable, 0.95), ALLOWED)
    assert why in found
    assert bool(why) == bool(found)
