"""The judge: verdicts with reasons and numbers from the answers of both versions."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from clusters.base.latency_buckets import bucket_of
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.judge import error_limits, judge, ratio_in_buckets, slow_limits
from serving.reconciler.rollout.judging.verdict import UNANSWERED, JudgedStep, Verdict
from serving.types.rollout import Judge, MetricRule

RULE = Judge()
TENTH, HALF, ALL = JudgedStep(10, 3, True), JudgedStep(50, 3, True), JudgedStep(100, 3, True)
FAST, SLOW = -32, -8
"""Buckets: 63 ms and half a second."""


def answers(requests: int, errors: int = 0, slow: float = 0.04, shift: int = 0) -> Counts:
    """So many, of whose answers a share `slow` lies in the slow bucket; all are `shift` buckets slower."""
    timed = requests - errors
    late = round(timed * slow)
    return Counts(requests, errors, {FAST + shift: timed - late, SLOW + shift: late})


@pytest.mark.parametrize(
    ("stable", "candidate", "stage", "decision"),
    [
        (answers(900, 1), answers(100), TENTH, "pass"),
        (answers(900, 1), answers(100), HALF, "wait"),  # a candidate at 50 % must show more
        (answers(900, 1), answers(30), TENTH, "wait"),
        (answers(900, 1), answers(100), JudgedStep(10, 3, False), "wait"),  # good, but the step's time is not over
        (answers(900, 1), answers(100, 20), JudgedStep(10, 3, False), "fail"),  # bad is bad at every look
        (answers(900, 180), answers(100, 20), TENTH, "wait"),  # the stable version fails as often
        (answers(9000, 1800), answers(1000, 200), TENTH, "pass"),
        (answers(600), answers(600), HALF, "pass"),
        (answers(600), answers(600, shift=2), HALF, "pass"),  # 19 % slower
        (answers(600), answers(600, shift=13), HALF, "fail"),  # three times slower
        (answers(600), answers(600, slow=0.4), HALF, "fail"),  # only some are
        (answers(600, slow=0.06), answers(600, slow=0.4), HALF, "pass"),  # as slow as the stable's slowest of twenty
        (answers(600, 2), answers(300), ALL, "pass"),
        (answers(600, 2), answers(300, 60), ALL, "fail"),
    ],
)
def test_a_candidate_is_judged(stable: Counts, candidate: Counts, stage: JudgedStep, decision: str) -> None:
    assert judge(RULE, stable, candidate, stage).decision == decision


@pytest.mark.parametrize(("times_slower", "decision"), [(8, "pass"), (64, "fail")])
def test_of_answers_within_a_millisecond_some_milliseconds_more_are_allowed(times_slower: int, decision: str) -> None:
    fast = -92  # a third of a millisecond
    later = fast + times_slower.bit_length() * 8 - 8
    verdict = judge(RULE, Counts(600, 0, {fast: 600}), Counts(600, 0, {later: 600}), HALF)
    assert verdict.decision == decision


def test_a_verdict_tells_its_reasons_and_numbers() -> None:
    verdict = judge(RULE, answers(900, 1), answers(100, 20), TENTH)
    [reason] = verdict.reasons
    bound = "error rate is at least 5.43 points higher than stable (allowed 1) at 99 % confidence"
    assert reason == f"{bound}: candidate 20.00%, stable 0.11%"
    assert verdict.numbers["candidate.errors"] == 0.2
    assert verdict.numbers["errors.lower"] > verdict.numbers["errors.allowed"] == 0.01
    assert verdict.numbers["candidate.latency"] == pytest.approx(2 ** (FAST / 8), rel=1e-5)
    assert json.loads(json.dumps(dict(verdict.numbers), allow_nan=False)) == verdict.numbers


def test_a_wait_tells_how_many_requests_a_good_version_takes() -> None:
    verdict = judge(RULE, answers(900), answers(30), TENTH)
    needed = verdict.numbers["needed"]
    assert verdict.reasons[0] == f"30 of about {needed:.0f} requests that a good version needs to pass"
    assert judge(RULE, answers(round(9 * needed)), answers(round(needed)), TENTH).decision == "pass"
    assert judge(RULE, answers(round(9 * needed * 0.6)), answers(round(needed * 0.6)), TENTH).decision == "wait"


def test_larger_shares_and_noisier_models_need_more_requests() -> None:
    def needed(stable: Counts, stage: JudgedStep) -> float:
        return judge(RULE, stable, Counts(), stage).numbers["needed"]

    assert needed(answers(900), TENTH) < needed(answers(900), HALF)
    assert needed(answers(900), HALF) < needed(answers(900, 45), HALF)


def test_without_any_request_the_judge_waits() -> None:
    verdict = judge(RULE, Counts(), Counts(), TENTH)
    assert verdict.decision == "wait"
    assert verdict.reasons[0] == "the candidate has not answered any request yet"


def test_at_part_of_the_traffic_the_latency_waits_for_the_stable_version() -> None:
    assert judge(RULE, Counts(5, 5), answers(2000), HALF).decision == "wait"


@pytest.mark.parametrize("candidate", [answers(2000), answers(2000, 400), answers(2000, 2000)])
@pytest.mark.parametrize("stable", [Counts(20, 20), answers(1000, 800), answers(2000, 500)])
def test_a_stable_version_that_is_itself_broken_is_nothing_to_compare_with(stable: Counts, candidate: Counts) -> None:
    for stage in (TENTH, HALF, ALL):
        verdict = judge(RULE, stable, candidate, stage, model="iris")
        assert verdict.decision == "hold"
        assert "the stable version itself fails" in verdict.reasons[0]
        assert "`knodel promote iris`" in verdict.reasons[0] and "`knodel abort iris`" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("limit", "stable", "decision"),
    [
        (0.2, answers(3, 1), "wait"),  # a third of three requests shows nothing
        (0.2, answers(9000, 1800), "pass"),  # as many as are allowed
        (0.9, answers(9000, 7200), "pass"),
        (0.0, answers(9000), "pass"),
        (0.0, answers(9000, 1), "hold"),
    ],
)
def test_how_broken_a_stable_version_may_be_is_a_setting(limit: float, stable: Counts, decision: str) -> None:
    candidate = answers(1000, round(1000 * stable.errors / stable.requests))
    verdict = judge(Judge(max_stable_error_rate=limit), stable, candidate, TENTH)
    assert (verdict.decision == "hold") == (decision == "hold")


def test_callers_errors_count_for_neither_version_unless_they_are_asked_for() -> None:
    stable, candidate = replace(answers(900, 1), refused=10), replace(answers(100), refused=500)
    assert judge(RULE, stable, candidate, TENTH).decision == "pass"
    asked = judge(Judge(count_4xx=True), stable, candidate, TENTH)
    assert asked.decision == "fail"
    assert asked.numbers["candidate.errors"] == pytest.approx(500 / 600, rel=1e-5)
    assert judge(RULE, stable, candidate, TENTH).numbers["candidate.refused"] == 500


OLD, YOUNG = bucket_of(60.0), bucket_of(0.01)


def test_a_version_that_hangs_fails_by_its_latency_before_it_has_any_answer() -> None:
    assert judge(RULE, answers(900), Counts(pending={bucket_of(1.0): 60}), TENTH).decision == "fail"
    assert judge(RULE, answers(900), Counts(pending={YOUNG: 60}), TENTH).decision == "wait"


def test_requests_that_hang_are_errors_of_either_version() -> None:
    hangs = judge(RULE, answers(900), replace(answers(60), pending={OLD: 60}), TENTH)
    assert hangs.decision == "fail"
    assert hangs.numbers["candidate.errors"] == 0.5
    assert (hangs.numbers["candidate.hanging"], hangs.numbers["candidate.inFlight"]) == (60, 60)
    assert hangs.numbers["candidate.oldest"] == pytest.approx(60.0, rel=0.1)
    both = judge(RULE, replace(answers(900), pending={OLD: 90}), replace(answers(100), pending={OLD: 10}), TENTH)
    assert both.decision == "wait"


def test_a_stable_version_of_which_nothing_is_known_does_not_let_a_version_pass_that_hangs() -> None:
    for stage in (TENTH, HALF, ALL):
        verdict = judge(RULE, Counts(), Counts(pending={OLD: 551}), stage)
        assert verdict.decision == "wait"
        assert UNANSWERED in verdict.numbers
        assert "551 in flight" in verdict.reasons[0]


def test_at_all_of_it_a_stable_version_that_answered_nothing_does_not_hold_the_candidate() -> None:
    verdict = judge(RULE, Counts(), answers(500), ALL)
    assert verdict.decision == "pass"
    assert "errors alone decide" in verdict.reasons[1]
    assert judge(RULE, Counts(), answers(500, 25), ALL).decision == "wait"


def test_at_all_of_it_too_few_answers_of_a_bad_stable_version_are_told_of() -> None:
    verdict = judge(RULE, answers(10, 3), answers(5000, 1500), ALL)
    assert verdict.decision == "wait"
    assert "has answered too few requests for a comparison" in verdict.reasons[0]
    assert "needed" not in verdict.numbers


@pytest.mark.parametrize(
    ("percent", "errors", "slow"),
    [(1, 1.0, 1.0), (10, 0.1, 0.25), (50, 0.02, 0.05), (90, 0.02, 0.05), (100, 0.04, 0.1)],
)
def test_what_would_be_harm_follows_from_the_share_of_the_traffic(percent: int, errors: float, slow: float) -> None:
    stage = JudgedStep(percent, 3, True)
    assert error_limits(RULE, stage).harm == pytest.approx(errors)
    assert slow_limits(RULE, stage).harm == pytest.approx(slow)


def test_one_percent_of_wrong_failures_is_shared_by_all_steps_and_both_comparisons() -> None:
    limits = error_limits(RULE, HALF), slow_limits(RULE, HALF)
    assert sum(3 * math.exp(-one.to_fail) for one in limits) == pytest.approx(0.01)


@pytest.mark.parametrize("size", [20, 90, 100, 110, 200, 400, 1000, 1600])
def test_the_bounds_that_are_told_agree_with_the_verdict(size: int) -> None:
    for errors in (0.0, 0.02, 0.05):
        verdict = judge(RULE, answers(size, round(size * 0.01)), answers(size, round(size * errors)), HALF)
        told = verdict.numbers
        seen = told["candidate.errors"] - told["stable.errors"]
        assert told["errors.lower"] <= seen <= told["errors.upper"]
        assert (verdict.decision == "fail") == (told["errors.lower"] > 0.01 or told["slow.lower"] > 0.0)
        if verdict.decision == "pass":
            assert told["errors.upper"] <= 0.02


METRIC = Judge(metrics=(MetricRule("drift", "avg(drift)", 0.3),))


@pytest.mark.parametrize(
    ("readings", "decision", "reason"),
    [
        ({"drift": 0.2}, "pass", "drift: 0.2 is at most 0.3"),
        ({"drift": 0.4}, "fail", "drift: 0.4 is above 0.3 in 2 judgements in a row"),
        ({"drift": math.inf}, "fail", "drift: inf is above 0.3 in 2 judgements in a row"),
        ({"drift": None}, "wait", "drift: the query has no value"),
        ({"drift": math.nan}, "wait", "drift: the query has no value"),
        ({}, "wait", "drift: the query has no value"),
    ],
)
def test_a_further_metric_is_held_to_its_most(readings: dict[str, float | None], decision: str, reason: str) -> None:
    verdict = judge(METRIC, answers(900), answers(100), TENTH, readings, {"above.drift": 1.0})
    assert verdict.decision == decision
    assert reason in verdict.reasons
    assert (decision == "wait") == (verdict.reasons[0] == "errors and latency pass, but not every metric does")
    assert all(math.isfinite(number) for number in verdict.numbers.values())


@pytest.mark.parametrize(
    ("values", "decisions"),
    [
        ([0.4, 0.4], ["wait", "fail"]),
        ([0.4, 0.2, 0.4], ["wait", "pass", "wait"]),  # not in a row
        ([0.4, None, math.inf], ["wait", "wait", "fail"]),  # no value is no reading
        ([math.inf, math.inf], ["wait", "fail"]),
    ],
)
def test_a_metric_fails_by_two_readings_in_a_row(values: list[float | None], decisions: list[str]) -> None:
    verdict, found = Verdict("wait", ()), []
    for value in values:
        verdict = judge(METRIC, answers(900), answers(100), TENTH, {"drift": value}, verdict.numbers)
        found.append(verdict.decision)
    assert found == decisions


def test_what_a_metric_tells_before_the_step_is_in_force_for_an_interval_fails_nothing() -> None:
    early = JudgedStep(10, 3, False, settled=False)
    verdict = Verdict("wait", ())
    for _ in range(5):
        verdict = judge(METRIC, answers(9), answers(1), early, {"drift": 1.0}, verdict.numbers)
    first = judge(METRIC, answers(90), answers(10), JudgedStep(10, 3, False), {"drift": 1.0}, verdict.numbers)
    assert (verdict.decision, first.decision) == ("wait", "wait")
    assert verdict.numbers["metric.drift"] == 1.0  # people see it all the same


def test_a_version_that_fails_and_a_metric_that_does_are_both_told() -> None:
    verdict = judge(METRIC, answers(900), answers(100, 50), TENTH, {"drift": 1.0}, {"above.drift": 1.0})
    assert len(verdict.reasons) == 2


@pytest.mark.parametrize("rule", [Judge(max_error_rate=0.0), Judge(max_error_rate=1.0, max_latency_ratio=100.0)])
def test_the_bounds_of_the_rule_can_be_judged(rule: Judge) -> None:
    assert judge(rule, answers(40_000), answers(40_000), HALF).decision == "pass"


def test_a_tolerance_of_none_fails_what_is_surely_worse() -> None:
    assert judge(Judge(max_error_rate=0.0), answers(5000), answers(5000, 50), HALF).decision == "fail"


@pytest.mark.parametrize(("ratio", "up", "down"), [(1.0, 0, 0), (1.25, 3, 2), (2.0, 8, 8), (1.5, 5, 4)])
def test_a_ratio_is_rounded_in_favour_of_the_candidate_and_against_it(ratio: float, up: int, down: int) -> None:
    assert ratio_in_buckets(ratio) == (up, down)
