"""Whether the candidate of a rollout is good enough: from what it and the stable version answered, with reasons. Pure.

Two comparisons of rates, each with bounds that hold at every look (`serving.reconciler.rollout.judging.bounds`):

    errors    share of requests that failed                                      may exceed by  maxErrorRate
    latency   share of answers slower than the stable version's quantile,        may exceed by  nothing
              the candidate's measured against maxLatencyRatio times that, or 5 ms more

    a metric exceeds its `max` at two looks in a row
    with the step in force for an interval                                fail
    else the stable version surely fails more than maxStableErrorRate     hold: there is nothing to compare with
    else some comparison surely exceeds what it may                       fail
    else the step is over, every comparison surely stays below what
    would be harm at this step, and every metric has a value that it may  pass
    else                                                                  wait

Only requests of the split are counted, so that no caller chooses the version (`serving.modelserver.base.split`). The
caller's own errors (4xx) are not answers of the model, unless `count4xx` is set. Requests that hang are errors
(`hanging`).

Harm is what the candidate adds to all answers of the model. At 10 % of the traffic a version that fails 10 points more
often adds 1 % of errors, at 50 % one that fails 2 points more often does: a step passes once that is ruled out, and how
many requests it takes follows from the bounds. Of slow answers, harm is half as many again as the quantile leaves.

The counts of a step begin with it: within a step both versions meet the same minutes, over several steps they do not,
as the candidate has more of the later ones (Simpson's paradox). What a metric looks back at is the query's matter, so
one reading of it decides nothing. At 100 % the stable version's counts are those of the
last step that left it traffic.
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
from serving.reconciler.rollout.judging.verdict import ABOVE, UNANSWERED, Decision, Stage, Verdict
from serving.types.rollout import Judge, MetricRule

WRONG_FAIL = 0.01
"""Chance that a version no worse than allowed ever fails: over all looks, steps and comparisons of a rollout."""
WRONG_PASS = 0.01
"""Chance that a version that does harm ever passes that comparison at that step."""
TO_HOLD = math.log(1.0 / 0.01)
"""Evidence that the stable version fails more often than it may: a chance of 1 % to hold without need."""
COMPARISONS = 2
"""Errors and latency: the first of the findings."""
LEAST_ALLOWANCE = 0.001
"""Of requests, added: no number of them shows that a version adds none at all."""
LEAST_DIFFERENCE = 0.005
"""s: where answers take less than a millisecond, a new replica, or one with a busy neighbour, takes twice as long."""
SLOW_ADDED = 0.5
"""Of the slow answers that the quantile leaves, added: to rule that out takes no more requests than errors do."""

READINGS = 2
"""Looks in a row at which a metric must exceed its `max`: one failed request among few, or the minutes before the step
in the query's window, are no more than one."""

Findings = tuple[tuple[Decision, str], ...]


def judge(
    rule: Judge,
    stable: Counts,
    candidate: Counts,
    stage: Stage,
    readings: Mapping[str, float | None] = MappingProxyType({}),
    former: Mapping[str, float] = MappingProxyType({}),
    model: str = "NAME",
) -> Verdict:
    """The verdict on the candidate from what both answered since the stage began.

    `readings` are the values of the rule's further metrics by name: None, or not there, when the query had no answer.
    `former` are the numbers of the stage's last verdict: how often in a row a metric was above its `max`. `model` is
    the model as the command takes it, for remedies.
    """
    age = hanging_age(stable, rule.quantile)
    open_question = unanswered(stable, candidate, age, rule.max_error_rate)
    in_flight = _in_flight(stable, candidate, age)
    stable, candidate = (with_hanging(_counted(rule, one), age) for one in (stable, candidate))
    broken = is_broken(rule, stable)
    errors = compare_errors(rule, stable, candidate, stage)
    latency = compare_latency(rule, stable, candidate, stage)
    needed = max(errors.needed, latency.needed if latency else 0.0)
    above = {metric.name: _times_above(metric, readings.get(metric.name), stage, former) for metric in rule.metrics}
    compared = (_found("errors", errors, error_limits(rule, stage)), _of_latency(latency, rule, stage, stable))
    if broken:
        compared = (_of_broken(rule, stable, model), ("hold", "latency: not compared with such a version"))
    findings = (
        *compared,
        *(_of_metric(metric, readings.get(metric.name), above[metric.name]) for metric in rule.metrics),
    )
    decision = _decision(findings, stage)
    reasons = tuple(reason for kind, reason in findings if decision in (kind, "wait"))
    if decision == "wait":
        reasons = (*filter(None, (open_question,)), _waiting(findings, candidate, needed), *reasons)
    numbers = {
        **_numbers(stable, candidate, rule.quantile, needed),
        **in_flight,
        **({UNANSWERED: 1.0} if open_question and stage.over else {}),
        **_bounds("errors", errors, error_limits(rule, stage)),
        **(_bounds("slow", latency, slow_limits(rule, stage)) if latency else {}),
        **{f"metric.{name}": value for name, value in readings.items() if value is not None},
        **{f"{ABOVE}{name}": times for name, times in above.items() if times},
    }
    return Verdict(decision, reasons, _written(numbers))


def compare_errors(rule: Judge, stable: Counts, candidate: Counts, stage: Stage) -> Comparison:
    """The shares of requests that failed."""
    hits = (candidate.errors, candidate.requests)
    return compare((stable.errors, stable.requests), hits, hits, error_limits(rule, stage), stage.stable_share)


def compare_latency(rule: Judge, stable: Counts, candidate: Counts, stage: Stage) -> Comparison | None:
    """The shares of slow answers; None while the stable version has no latency to compare with."""
    bucket = stable.quantile_bucket(rule.quantile)
    if bucket is None:
        return None
    up, down = ratio_in_buckets(rule.max_latency_ratio)
    floor = bucket_of(upper_edge(bucket) + LEAST_DIFFERENCE)
    to_fail = _slow(candidate, max(bucket + up, floor))
    to_pass = _slow(candidate, max(bucket + down, floor - 1))
    slow = _slow(stable, bucket)
    return compare(slow, to_fail, to_pass, slow_limits(rule, stage), stage.stable_share)


def is_broken(rule: Judge, stable: Counts) -> bool:
    """Return whether the stable version surely fails more often than a version to compare with may."""
    hits, requests = np.asarray(float(stable.errors)), np.asarray(float(stable.requests))
    return bool(evidence_of_rate(hits, requests, rule.max_stable_error_rate) >= TO_HOLD)


def error_limits(rule: Judge, stage: Stage) -> Limits:
    """What the candidate's error rate may exceed the stable version's by, and what would be harm at this stage."""
    return _limits(rule.max_error_rate, max(rule.max_error_rate, LEAST_ALLOWANCE), stage)


def slow_limits(rule: Judge, stage: Stage) -> Limits:
    """The same of the shares of slow answers."""
    return _limits(0.0, SLOW_ADDED * (1.0 - rule.quantile), stage)


def ratio_in_buckets(ratio: float) -> tuple[int, int]:
    """Buckets by which a latency may rise, rounded up (what fails is slower still) and down (what passes is not)."""
    exact = round(math.log2(ratio) * PER_OCTAVE, 9)
    return math.ceil(exact), math.floor(exact)


def _counted(rule: Judge, counts: Counts) -> Counts:
    """Return the counts with the caller's errors among the version's where the rule says so."""
    if not rule.count_4xx:
        return counts
    return replace(counts, requests=counts.requests + counts.refused, errors=counts.errors + counts.refused)


def _slow(counts: Counts, bucket: int) -> tuple[int, int]:
    """Return how many requests took longer than the bucket, and of how many that is known.

    Of a request in flight it is known once it has taken longer.
    """
    late = counts.pending_above(bucket)
    return counts.slower_than(bucket) + late, counts.timed + late


def _limits(allowed: float, added: float, stage: Stage) -> Limits:
    return Limits(
        allowed=allowed,
        harm=min(added / stage.share, 1.0),
        to_fail=math.log(COMPARISONS * stage.steps / WRONG_FAIL),
        to_pass=math.log(1.0 / WRONG_PASS),
    )


def _decision(findings: Findings, stage: Stage) -> Decision:
    kinds = {kind for kind, _ in findings}
    if "fail" in kinds:
        return "fail"
    if "hold" in kinds:
        return "hold"
    return "pass" if stage.over and kinds <= {"pass"} else "wait"


def _of_latency(one: Comparison | None, rule: Judge, stage: Stage, stable: Counts) -> tuple[Decision, str]:
    if one is not None:
        slow = f"answers slower than the stable version's {rule.quantile:.4g} quantile times {rule.max_latency_ratio:g}"
        return _found(slow, one, slow_limits(rule, stage))
    if stage.stable_share == 0.0:  # none will come
        return "pass", "latency: the stable version has no answers to compare with, errors alone decide"
    if (1.0 - error_limits(rule, stage).harm) ** stable.errors <= WRONG_PASS:
        return "pass", f"latency: the stable version failed all of {stable.errors} requests, errors alone decide"
    return "wait", "latency: the stable version has no answers yet to compare with"


def _of_broken(rule: Judge, stable: Counts, model: str) -> tuple[Decision, str]:
    return "hold", (
        f"the stable version itself fails {stable.errors / stable.requests:.0%} of {stable.requests} requests, which "
        f"is more than judge.maxStableErrorRate ({rule.max_stable_error_rate:.0%}) and nothing to compare with: "
        f"`knodel promote {model}` gives the candidate all traffic, `knodel abort {model}` takes it back"
    )


def _found(what: str, one: Comparison, limits: Limits) -> tuple[Decision, str]:
    seen = f"{what}: {one.candidate:.2%}, stable {one.stable:.2%}"
    if one.fails:
        return "fail", f"{seen}: surely more than {one.lower:.2%} above, allowed is {limits.allowed:.2%}"
    if one.passes:
        return "pass", f"{seen}: surely less than {one.upper:.2%} above, {limits.harm:.2%} would be harm"
    return "wait", f"{seen}: from {one.lower:.2%} to {one.upper:.2%} above, {limits.harm:.2%} would be harm"


def _times_above(metric: MetricRule, value: float | None, stage: Stage, former: Mapping[str, float]) -> int:
    """Looks in a row, this one included, that found the metric above its `max`; one without a value is none."""
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
        return "fail", f"{seen}, {above} looks in a row"
    return "wait", f"{seen}: it takes {READINGS} looks in a row to fail, with the step in force for an interval"


def _waiting(findings: Findings, candidate: Counts, needed: float) -> str:
    if not candidate.requests:
        return "the candidate has answered nothing yet"
    if all(kind == "pass" for kind, _ in findings):
        return "good so far, the step's time is not over"
    if all(kind == "pass" for kind, _ in findings[:COMPARISONS]):
        return "good by its answers, but not by every metric"
    if math.isinf(needed):
        return f"{candidate.requests} requests: the stable version answered too few for any number to suffice"
    if candidate.requests < needed:
        return f"{candidate.requests} of about {needed:.0f} requests that a good version takes to pass"
    return f"{candidate.requests} requests, a good version takes about {needed:.0f}: neither good nor bad for sure"


def _in_flight(stable: Counts, candidate: Counts, age: float) -> dict[str, float]:
    """Return what is in flight (`oldest` in seconds) and what was refused or left, as far as there is any."""
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


def _numbers(stable: Counts, candidate: Counts, quantile: float, needed: float) -> dict[str, float | None]:
    """Latency at the quantile in seconds."""
    return {
        "stable.requests": stable.requests,
        "candidate.requests": candidate.requests,
        "needed": needed,
        "stable.latency": stable.quantile(quantile),
        "candidate.latency": candidate.quantile(quantile),
    }


def _bounds(what: str, one: Comparison, limits: Limits) -> dict[str, float]:
    """Shares of 1; `lower` and `upper` bound the difference."""
    return {
        f"stable.{what}": one.stable,
        f"candidate.{what}": one.candidate,
        f"{what}.lower": one.lower,
        f"{what}.upper": one.upper,
        f"{what}.allowed": limits.allowed,
        f"{what}.harm": limits.harm,
    }


def _written(numbers: Mapping[str, float | None]) -> dict[str, float]:
    """Six digits of each, without what JSON cannot carry."""
    return {
        name: float(f"{value:.6g}") for name, value in numbers.items() if value is not None and math.isfinite(value)
    }
