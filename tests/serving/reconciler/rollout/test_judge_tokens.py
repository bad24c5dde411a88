"""The judge on language models: time to the first token, and time between tokens."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from clusters.base.latency_buckets import bucket_of
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.judge import error_limits, judge, slow_limits
from serving.reconciler.rollout.judging.verdict import UNANSWERED, JudgedStep
from serving.types.rollout import Judge

RULE = Judge()
TENTH, HALF, ALL = JudgedStep(10, 3, True), JudgedStep(50, 3, True), JudgedStep(100, 3, True)
FIRST, BETWEEN = bucket_of(0.2), bucket_of(0.03)
TRIPLE = 13
"""Buckets; 2^(13/8) is 3.1."""


def streams(number: int, first: int = 0, between: int = 0) -> Counts:
    """Streamed answers, whose times are so many buckets above the usual ones."""
    return Counts(number, 0, {FIRST + first: number}, between_tokens={BETWEEN + between: number})


@pytest.mark.parametrize(
    ("candidate", "decision", "reason"),
    [
        (streams(800), "pass", "share of answers with a time between tokens above 1.25 times the stable version's"),
        (streams(800, between=2), "pass", "time between tokens"),
        (streams(800, between=TRIPLE), "fail", "time between tokens"),
        (streams(800, first=TRIPLE), "fail", "share of answers slower than 1.25 times the stable version's"),
        (streams(800, first=TRIPLE, between=-TRIPLE), "fail", "share of answers slower than"),
        (streams(800, first=-TRIPLE, between=TRIPLE), "fail", "time between tokens"),
        (streams(300), "wait", "time between tokens"),
    ],
)
def test_a_slower_first_token_and_slower_tokens_fail(candidate: Counts, decision: str, reason: str) -> None:
    verdict = judge(RULE, streams(800), candidate, HALF)
    assert verdict.decision == decision
    assert any(reason in one for one in verdict.reasons), verdict.reasons


def test_a_verdict_has_the_numbers_of_tokens() -> None:
    numbers = judge(RULE, streams(800), streams(800, between=TRIPLE), HALF).numbers
    assert numbers["candidate.slowTokens"] == 1.0
    assert numbers["slowTokens.lower"] > numbers["slowTokens.allowed"] == 0.0
    assert numbers["candidate.interTokenLatency"] / numbers["stable.interTokenLatency"] > 3.0


@pytest.mark.parametrize("which", ["stable", "candidate", "both"])
def test_without_times_of_one_version_tokens_are_not_compared(which: str) -> None:
    stable, candidate = streams(800), streams(800, between=TRIPLE)
    if which in ("stable", "both"):
        stable = replace(stable, between_tokens={})
    if which in ("candidate", "both"):
        candidate = replace(candidate, between_tokens={})
    verdict = judge(RULE, stable, candidate, HALF)
    assert verdict.decision == "pass"
    assert len(verdict.reasons) == 2
    assert "slowTokens.upper" not in verdict.numbers


@pytest.mark.parametrize(("seconds", "decision"), [(0.0002, "pass"), (0.0011, "pass"), (0.0016, "fail")])
def test_of_tokens_within_a_millisecond_one_more_is_allowed(seconds: float, decision: str) -> None:
    stable, candidate = (
        Counts(800, 0, {FIRST: 800}, between_tokens={bucket_of(one): 800}) for one in (0.0002, seconds)
    )
    assert judge(RULE, stable, candidate, HALF).decision == decision


def test_five_milliseconds_more_for_each_token_are_not_allowed() -> None:
    """As long as they are for whole answers."""
    stable, candidate = (Counts(800, 0, {FIRST: 800}, between_tokens={bucket_of(one): 800}) for one in (0.005, 0.009))
    assert judge(RULE, stable, candidate, HALF).decision == "fail"


def test_the_chance_of_a_wrong_failure_is_shared_by_all_comparisons_with_tokens_too() -> None:
    limits = error_limits(RULE, HALF), slow_limits(RULE, HALF, times=2), slow_limits(RULE, HALF, times=2)
    assert sum(3 * math.exp(-one.to_fail) for one in limits) == pytest.approx(0.01)


def test_the_latency_has_its_smaller_chance_from_the_first_time_between_tokens_on() -> None:
    """Of all numbers of slow answers, some are enough to fail without tokens but not with them."""

    def fails(slow: int, between: int) -> bool:
        stable = Counts(4000, 0, {FIRST: 3840, FIRST + 8: 160}, between_tokens={BETWEEN: between} if between else {})
        candidate = Counts(1000, 0, {FIRST: 1000 - slow, FIRST + 8: slow})
        return judge(RULE, stable, candidate, HALF).decision == "fail"

    without, with_tokens = ([fails(slow, between) for slow in range(200)].index(True) for between in (0, 1))
    assert without < with_tokens


def untimed(number: int) -> Counts:
    return Counts(number)


@pytest.mark.parametrize("stage", [TENTH, HALF, ALL])
@pytest.mark.parametrize(
    ("stable", "candidate", "version"),
    [
        (untimed(2000), untimed(2000), "stable version"),
        (untimed(2000), streams(2000), "stable version"),
        (streams(2000), untimed(2000), "candidate"),
    ],
)
def test_answers_without_a_known_first_token_are_judged_by_errors(
    stable: Counts, candidate: Counts, version: str, stage: JudgedStep
) -> None:
    verdict = judge(RULE, stable, candidate, stage)
    assert verdict.decision == "pass"
    assert f"none of 2000 answers of the {version} has a known latency, so errors alone decide" in verdict.reasons[1]
    bad = replace(candidate, requests=2500, errors=500)
    assert judge(RULE, replace(stable, requests=2500), bad, stage).decision == "fail"


def test_a_few_answers_without_a_first_token_do_not_end_the_wait_for_one() -> None:
    verdict = judge(RULE, untimed(20), streams(2000), TENTH)
    assert verdict.decision == "wait"
    assert "latency is not compared yet" in verdict.reasons[-1]


def test_a_wait_tells_how_many_requests_it_takes_when_few_are_streamed() -> None:
    """Every tenth answer is a stream."""

    def tenth(number: int) -> Counts:
        return replace(streams(number // 10), requests=number)

    needed = judge(RULE, tenth(1000), tenth(1000), HALF).numbers["needed"]
    assert needed > 3 * judge(RULE, streams(1000), streams(1000), HALF).numbers["needed"]
    assert judge(RULE, tenth(round(needed)), tenth(round(needed)), HALF).decision == "pass"
    assert judge(RULE, tenth(round(needed * 0.6)), tenth(round(needed * 0.6)), HALF).decision == "wait"


def test_answers_that_are_no_streams_do_not_hang_but_keep_a_version_from_passing_unanswered() -> None:
    in_flight = Counts(pending={bucket_of(0.0): 40})
    verdict = judge(RULE, streams(900), in_flight, TENTH)
    assert verdict.decision == "wait"
    assert UNANSWERED in verdict.numbers
    assert verdict.reasons[0] == "no request to the candidate succeeded: 0 failed, 40 in flight"
    assert judge(RULE, streams(900), replace(streams(200), pending=in_flight.pending), TENTH).decision == "pass"
