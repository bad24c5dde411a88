"""Judge whether the candidate of a rollout is good enough, from the answers of both versions, with reasons. Pure.

Two or three rates are compared, each with bounds that hold at all judgements together
(`serving.reconciler.rollout.judging.bounds`):

    errors    share of requests that failed                                      may exceed by  maxErrorRate
    latency   share of answers slower than the stable version's quantile,        may exceed by  0
              the candidate's measured against maxLatencyRatio times that, or 5 ms more
    tokens    share of answers with more time between tokens than that           may exceed by  0
              quantile of the stable version, measured in the same way, or 1 ms more

The latency of a language model is the time to its first token. The third rate is compared when both versions have
streamed answers. Rates of times need as many answers with a time as errors need answers, so a language model with few
streams waits longer.

The first row that applies decides. "Certainly" means with the evidence that `WRONG_FAIL` and `WRONG_PASS` require.

    a metric exceeds its `max` in two judgements in a row,
    with the step in force for an interval                                fail
    the stable version certainly fails more than maxStableErrorRate       hold: nothing to compare with
    a rate certainly exceeds the stable version's by more than allowed    fail
    the step is over, every rate is certainly below the harmful one
    at this step, and every metric has a permitted value                  pass
    otherwise                                                             wait

Only requests that the traffic split assigned are counted, so callers cannot choose the version
(`serving.modelserver.base.split`). Callers' errors (4xx) do not count as answers of the model, unless `count4xx` is
set. Requests that hang count as errors (`hanging`).

Harm is measured in all answers of the model. At 10 % of the traffic, a version whose error rate is 10 points higher
adds 1 % of errors; at 50 % a version with 2 points more does. A step passes when that is excluded. The bounds determine
how many requests this takes. For slow answers, harm is half of the share that the quantile leaves.

Counts begin anew with each step. Within a step both versions serve the same minutes. Over several steps they do not,
since the candidate gets more of the later ones (Simpson's paradox). The query of a metric determines its window, which
may include time before the step: so a single reading decides nothing. At 100 % the stable version's counts are those of
the last step in which it had traffic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from clusters.base.latency_buckets import PER_OCTAVE, bucket_of, upper_edge
from serving.reconciler.rollout.judging.bounds import evidence_of_rate
from serving.reconciler.rollout.judging.compare import Comparison, Limits, compare
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.hanging import hanging, hanging_age, unanswered, with_hanging
from serving.reconciler.rollout.judging.verdict import ABOVE, UNANSWERED, Decision, JudgedStep, Verdict
from serving.types.rollout import Judge, MetricRule

WRONG_FAIL = 0.01
"""Chance that a version no worse than allowed fails, over all judgements, steps and comparisons of a rollout."""
WRONG_PASS = 0.01
"""Chance that a harmful version passes a comparison at a step, over all judgements of the step."""
CONFIDENCE = "99 % confidence"
"""The words of messages for both chances."""
TO_HOLD = math.log(1.0 / 0.01)
"""Evidence to hold for a stable version that fails too often: a chance of 1 % to hold needlessly."""
COMPARISONS = 2
"""Errors and times: each has half of the chance to fail wrongly. Latency and the time between tokens share the latter.

Models without tokens therefore have the limits that they would have without the third comparison, and the limit of
errors does not depend on what has been answered so far. Latency has half of its chance from the first time between
tokens on. Answers with tokens bring both, so hardly any latency is compared before; if all of it were, the chances
would add up to 1.25 %.
"""
LEAST_ALLOWANCE = 0.001
"""Added share of failed requests that is always tolerated: no number of requests can exclude any smaller one."""
LEAST_DIFFERENCE = 0.005
"""s: when answers take less than a millisecond, a new replica or one on a busy node easily takes twice as long."""
LEAST_TOKEN_DIFFERENCE = 0.001
"""s: the mean over the tokens of an answer evens out the pauses that single answers have, and 1 ms for each of a
thousand tokens is a second. Below it are small models, with which a busy node easily doubles the time."""
SLOW_ADDED = 0.5
"""Harmful addition to the slow answers that the quantile leaves. Excluding it takes no more requests than errors do."""

READINGS = 2
"""Judgements in a row in which a metric must exceed its `max`. One failed request among few, or minutes before the step
in the query's window, cause one such reading at most."""

Findings = tuple[tuple[Decision, str], ...]


def judge(
    rule: Judge,
    stable: Counts,
    candidate: Counts,
    stage: JudgedStep,
    readings: Mapping[str, float | None] = MappingProxyType({}),
    former: Mapping[str, float] = MappingProxyType({}),
    model: str = "NAME",
) -> Verdict:
    """Return the verdict on the candidate, from the answers of both versions since the stage began.

    `readings` are the values of the rule's metrics by name; None or absent when the query had no value. `former` are
    the numbers of the last verdict at this stage, with the number of judgements in a row in which a metric was above
    its `max`. `model` is the model's argument on the command line, for remedies.
    """
    age = hanging_age(stable, rule.quantile)
    open_question = unanswered(stable, candidate, age, rule.max_error_rate)
    in_flight = _in_flight(stable, candidate, age)
    if rule.count_4xx:
        stable, candidate = (
            replace(one, requests=one.requests + one.refused, errors=one.errors + one.refused)
            for one in (stable, candidate)
        )
    stable, candidate = (with_hanging(one, age) for one in (stable, candidate))
    broken = is_broken(rule, stable)
    errors = compare_errors(rule, stable, candidate, stage)
    times = 2 if stable.between_tokens or candidate.between_tokens else 1
    slow = slow_limits(rule, stage, times)
    latency = compare_latency(rule, stable, candidate, stage, slow, LEAST_DIFFERENCE)
    tokens = None
    if stable.between_tokens and candidate.between_tokens:
        tokens = compare_latency(rule, stable.tokens, candidate.tokens, stage, slow, LEAST_TOKEN_DIFFERENCE)
    needed = max(
        errors.needed, _in_requests(latency, stable, stable.timed), _in_requests(tokens, stable, stable.tokens.timed)
    )
    above = {metric.name: _times_above(metric, readings.get(metric.name), stage, former) for metric in rule.metrics}
    compared = (
        _found("error rate", errors, error_limits(rule, stage)),
        _of_latency(latency, rule, stage, stable, candidate, slow),
        *_of_tokens(tokens, rule, slow),
    )
    if broken:
        compared = (_of_broken(rule, stable, model), ("hold", "latency is not compared with such a version"))
    findings = (
        *compared,
        *(_of_metric(metric, readings.get(metric.name), above[metric.name]) for metric in rule.metrics),
    )
    decision = _decision(findings, stage)
    reasons = tuple(reason for kind, reason in findings if decision in (kind, "wait"))
    if decision == "wait":
        reasons = (*filter(None, (open_question,)), _waiting(findings, len(compared), candidate, needed), *reasons)
    numbers: dict[str, float | None] = {
        "stable.requests": stable.requests,
        "candidate.requests": candidate.requests,
        "needed": needed,
        "stable.latency": stable.quantile(rule.quantile),
        "candidate.latency": candidate.quantile(rule.quantile),
        "stable.interTokenLatency": stable.tokens.quantile(rule.quantile),
        "candidate.interTokenLatency": candidate.tokens.quantile(rule.quantile),
        **in_flight,
        **({UNANSWERED: 1.0} if open_question and stage.over else {}),
        **_bounds("errors", errors, error_limits(rule, stage)),
        **(_bounds("slow", latency, slow) if latency else {}),
        **(_bounds("slowTokens", tokens, slow) if tokens else {}),
        **{f"metric.{name}": value for name, value in readings.items() if value is not None},
        **{f"{ABOVE}{name}": times for name, times in above.items() if times},
    }
    known = {name: value for name, value in numbers.items() if value is not None and math.isfinite(value)}
    return Verdict(decision, reasons, {name: float(f"{value:.6g}") for name, value in known.items()})


def compare_errors(rule: Judge, stable: Counts, candidate: Counts, stage: JudgedStep) -> Comparison:
    """Compare the shares of requests that failed."""
    hits = (candidate.errors, candidate.requests)
    return compare((stable.errors, stable.requests), hits, hits, error_limits(rule, stage), stage.stable_share)


def compare_latency(
    rule: Judge, stable: Counts, candidate: Counts, stage: JudgedStep, limits: Limits, difference: float
) -> Comparison | None:
    """Compare the shares of slow answers; None while the stable version has no latency to compare with.

    Less than `difference` seconds more than the stable version's quantile are not slow.
    """
    bucket = stable.quantile_bucket(rule.quantile)
    if bucket is None:
        return None
    up, down = ratio_in_buckets(rule.max_latency_ratio)
    floor = bucket_of(upper_edge(bucket) + difference)
    to_fail = _slow(candidate, max(bucket + up, floor))
    to_pass = _slow(candidate, max(bucket + down, floor - 1))
    slow = _slow(stable, bucket)
    return compare(slow, to_fail, to_pass, limits, stage.stable_share)


def is_broken(rule: Judge, stable: Counts) -> bool:
    """Return whether the stable version certainly fails more often than `maxStableErrorRate`."""
    hits, requests = np.asarray(float(stable.errors)), np.asarray(float(stable.requests))
    return bool(evidence_of_rate(hits, requests, rule.max_stable_error_rate) >= TO_HOLD)


def error_limits(rule: Judge, stage: JudgedStep) -> Limits:
    """Return by how much the candidate's error rate may exceed the stable version's, and the harmful difference."""
    return _limits(rule.max_error_rate, max(rule.max_error_rate, LEAST_ALLOWANCE), stage)


def slow_limits(rule: Judge, stage: JudgedStep, times: int = 1) -> Limits:
    """Return the same limits for the shares of slow answers, of which `times` are compared (1 or 2)."""
    return _limits(0.0, SLOW_ADDED * (1.0 - rule.quantile), stage, times)


def ratio_in_buckets(ratio: float) -> tuple[int, int]:
    """Return the number of buckets by which a latency may rise, rounded up (to fail) and rounded down (to pass)."""
    exact = round(math.log2(ratio) * PER_OCTAVE, 9)
    return math.ceil(exact), math.floor(exact)


def _slow(counts: Counts, bucket: int) -> tuple[int, int]:
    """Return the number of requests slower than the bucket, and the number of requests with a known result.

    The result of a request in flight is known when it has taken longer than the bucket.
    """
    late = counts.pending_above(bucket)
    return counts.slower_than(bucket) + late, counts.timed + late


def _limits(allowed: float, added: float, stage: JudgedStep, times: int = 1) -> Limits:
    return Limits(
        allowed=allowed,
        harm=min(added / stage.share, 1.0),
        to_fail=math.log(COMPARISONS * times * stage.steps / WRONG_FAIL),
        to_pass=math.log(1.0 / WRONG_PASS),
    )


def _in_requests(one: Comparison | None, stable: Counts, timed: int) -> float:
    """Return how many requests a comparison of times needs, if `timed` of the stable version's answers have a time."""
    if one is None:
        return 0.0
    return one.needed * max((stable.requests - stable.errors) / timed, 1.0)


def _decision(findings: Findings, stage: JudgedStep) -> Decision:
    kinds = {kind for kind, _ in findings}
    if "fail" in kinds:
        return "fail"
    if "hold" in kinds:
        return "hold"
    return "pass" if stage.over and kinds <= {"pass"} else "wait"


def _of_latency(
    one: Comparison | None, rule: Judge, stage: JudgedStep, stable: Counts, candidate: Counts, limits: Limits
) -> tuple[Decision, str]:
    for version, counts in (("stable version", stable), ("candidate", candidate)):
        if _is_untimed(counts, rule, stage) and not (one and one.fails):
            known = f"none of {counts.requests - counts.errors} answers of the {version} has a known latency"
            return "pass", f"latency is not compared: {known}, so errors alone decide"
    if one is not None:
        return _found(f"share of answers slower than {_reference(rule)}", one, limits)
    if stage.stable_share == 0.0:  # no further answers will come
        return "pass", "latency is not compared: the stable version has no answers, so errors alone decide"
    if (1.0 - error_limits(rule, stage).harm) ** stable.errors <= WRONG_PASS:
        failed = f"the stable version failed all of {stable.errors} requests"
        return "pass", f"latency is not compared: {failed}, so errors alone decide"
    return "wait", "latency is not compared yet: the stable version has no answers"


def _is_untimed(counts: Counts, rule: Judge, stage: JudgedStep) -> bool:
    """Return whether a version has many answers and no latency, as a language model without streams may have."""
    answered = max(counts.requests - counts.errors, 0)
    return not counts.timed and (1.0 - error_limits(rule, stage).harm) ** answered <= WRONG_PASS


def _of_tokens(one: Comparison | None, rule: Judge, limits: Limits) -> Findings:
    """Return the finding on the time between tokens; none where it is not compared."""
    if one is None:
        return ()
    return (_found(f"share of answers with a time between tokens above {_reference(rule)}", one, limits),)


def _reference(rule: Judge) -> str:
    return f"{rule.max_latency_ratio:g} times the stable version's {rule.quantile:.4g} quantile"


def _of_broken(rule: Judge, stable: Counts, model: str) -> tuple[Decision, str]:
    return "hold", (
        f"the stable version itself fails {stable.errors / stable.requests:.0%} of {stable.requests} requests, more "
        f"than judge.maxStableErrorRate ({rule.max_stable_error_rate:.0%}), so the candidate cannot be compared with "
        f"it: `knodel promote {model}` gives the candidate all traffic, `knodel abort {model}` gives it none"
    )


def _found(what: str, one: Comparison, limits: Limits) -> tuple[Decision, str]:
    rates = f"candidate {one.candidate:.2%}, stable {one.stable:.2%}"
    if one.fails:
        bound = f"at least {_points(one.lower)} than stable (allowed {100 * limits.allowed:.3g})"
        return "fail", f"{what} is {bound} at {CONFIDENCE}: {rates}"
    limit = f"than stable (limit {100 * limits.harm:.3g})"
    if one.passes:
        bound = f"{'at least' if one.upper < 0.0 else 'at most'} {_points(one.upper)}"
        return "pass", f"{what} is {bound} {limit} at {CONFIDENCE}: {rates}"
    return "wait", f"{what} is from {_points(one.lower)} to {_points(one.upper)} {limit} at {CONFIDENCE}: {rates}"


def _points(difference: float) -> str:
    """Return a difference of rates in percentage points.

    Example:
        >>> _points(0.081)
        '8.1 points higher'
    """
    return f"{100 * abs(difference):.3g} points {'lower' if difference < 0.0 else 'higher'}"


def _times_above(metric: MetricRule, value: float | None, stage: JudgedStep, former: Mapping[str, float]) -> int:
    """Return the number of judgements in a row, with this one, in which the metric exceeded its `max`.

    A judgement without a value leaves the number unchanged.
    """
    before = int(former.get(f"{ABOVE}{metric.name}", 0))
    if value is None or math.isnan(value):
        return before
    return before + 1 if stage.settled and value > metric.max else 0


def _of_metric(metric: MetricRule, value: float | None, above: int) -> tuple[Decision, str]:
    if value is None or math.isnan(value):
        return "wait", f"{metric.name}: the query has no value"
    if value <= metric.max:
        return "pass", f"{metric.name}: {value:.6g} is at most {metric.max:.6g}"
    seen = f"{metric.name}: {value:.6g} is above {metric.max:.6g}"
    if above >= READINGS:
        return "fail", f"{seen} in {above} judgements in a row"
    needed = f"the step fails after {READINGS} judgements in a row, with the step in force for judge.interval"
    return "wait", f"{seen}: {needed}"


def _waiting(findings: Findings, comparisons: int, candidate: Counts, needed: float) -> str:
    if not candidate.requests:
        return "the candidate has not answered any request yet"
    if all(kind == "pass" for kind, _ in findings):
        return "all comparisons pass, but stepDuration is not over"
    if all(kind == "pass" for kind, _ in findings[:comparisons]):
        return "errors and latency pass, but not every metric does"
    if math.isinf(needed):
        return f"{candidate.requests} requests: the stable version has answered too few requests for a comparison"
    if candidate.requests < needed:
        return f"{candidate.requests} of about {needed:.0f} requests that a good version needs to pass"
    return f"{candidate.requests} requests, a good version needs about {needed:.0f}: the evidence is not conclusive"


def _in_flight(stable: Counts, candidate: Counts, age: float) -> dict[str, float]:
    """Return the numbers above 0 of requests in flight, refused or left by their callers; `oldest` in seconds."""
    found: dict[str, float] = {}
    for name, one in (("stable", stable), ("candidate", candidate)):
        found |= {
            f"{name}.refused": one.refused,
            f"{name}.left": one.left,
            f"{name}.inFlight": one.in_flight,
            f"{name}.oldest": one.oldest,
            f"{name}.hanging": hanging(one, age),
        }
    return {name: value for name, value in found.items() if value}


def _bounds(what: str, one: Comparison, limits: Limits) -> dict[str, float]:
    """Return rates and limits as shares of 1; `lower` and `upper` bound the difference of the rates."""
    return {
        f"stable.{what}": one.stable,
        f"candidate.{what}": one.candidate,
        f"{what}.lower": one.lower,
        f"{what}.upper": one.upper,
        f"{what}.allowed": limits.allowed,
        f"{what}.harm": limits.harm,
    }
