"""The schema of `spec.rollout`, with the bounds and defaults of `serving.types.rollout`. Pure."""

from __future__ import annotations

from typing import get_args

from clusters.base.durations import format_duration
from serving.crds import texts
from serving.crds.schema import (
    Schema,
    array,
    choice,
    flag,
    integer,
    mapping,
    matches,
    number,
    opaque,
    refused,
    rule,
    text,
    words_of,
)
from serving.types import rollout

_CHOICES = get_args(rollout.OnInsufficientTraffic)


def make_rollout() -> Schema:
    """Return the schema of `rollout`."""
    step, deadline, warm = map(format_duration, (rollout.STEP_DURATION, rollout.PROGRESS_DEADLINE, rollout.KEEP_WARM))
    return mapping(
        "Shift traffic to a new version in judged steps. If absent, a new version gets all traffic at once.",
        {
            "steps": _steps(),
            "stepDuration": texts.duration(
                f"Minimum duration of a step. Default: {step}.", rollout.LEAST_INTERVAL, rollout.LONGEST_STEP
            ),
            "progressDeadline": texts.duration(
                f"Time within which a step must be in force; the rollout fails otherwise. Default: {deadline}.",
                rollout.LEAST_INTERVAL,
                rollout.LONGEST_STEP,
            ),
            "maxSurge": integer(
                f"Maximum number of replicas above the number before the rollout. Default: {rollout.MAX_SURGE}.",
                0,
                rollout.MOST_SURGE,
            ),
            "judge": _judge(),
            "onInsufficientTraffic": choice(
                "Decision for a step that ends with too few requests for a verdict. Default: "
                f"{rollout.ON_INSUFFICIENT_TRAFFIC}.",
                _CHOICES,
                f"must be {' or '.join(_CHOICES)}",
            ),
            "keepWarm": texts.duration(
                f"Time without requests before the previous version loses its last replica. Default: {warm}.",
                0.0,
                rollout.LONGEST_STEP,
            ),
            **{name: opaque(f"Not supported yet: {words}.") for name, words in rollout.LATER_ROLLOUT.items()},
        },
        *refused(rollout.LATER_ROLLOUT),
    )


def _steps() -> Schema:
    return array(
        f"Percentages of traffic to the new version. Default: {', '.join(map(str, rollout.STEPS))}.",
        integer("Percentage of traffic.", 1, rollout.ALL),
        rollout.MOST_STEPS,
        rule(
            f"self[size(self) - 1] == {rollout.ALL} && self.all(one, self.exists_one(other, other == one)) "
            "&& self.isSorted()",
            f"must ascend and end with {rollout.ALL}",
        ),
    )


def _judge() -> Schema:
    return mapping(
        "Criteria for the new version.",
        {
            "interval": texts.duration(
                f"Time between two observations. Default: {format_duration(rollout.INTERVAL)}.",
                rollout.LEAST_INTERVAL,
                rollout.LONGEST_INTERVAL,
            ),
            "maxErrorRate": number(
                f"Maximum error rate above the stable version's. Default: {rollout.MAX_ERROR_RATE:g}.",
                0.0,
                1.0,
            ),
            "maxLatencyRatio": number(
                f"Maximum latency as a multiple of the stable version's. Default: {rollout.MAX_LATENCY_RATIO:g}.",
                1.0,
                rollout.LARGEST_RATIO,
            ),
            "quantile": number(
                f"Latency quantile that is compared. Default: {rollout.QUANTILE:g}.",
                rollout.LEAST_QUANTILE,
                rollout.MOST_QUANTILE,
            ),
            "maxStableErrorRate": number(
                "Maximum error rate of the stable version. Above it the rollout is held, since there is nothing to "
                f"compare with. Default: {rollout.MAX_STABLE_ERROR_RATE:g}.",
                0.0,
                1.0,
            ),
            "count4xx": flag("Whether 4xx responses count as errors of the version. Default: false."),
            "metrics": _metrics(),
        },
    )


def _metrics() -> Schema:
    printable = rule(matches(f"(?: |{texts.PRINTABLE})*"), words_of(rollout.query_fault, "\n"))
    metric = mapping(
        "A Prometheus metric.",
        {
            "name": texts.label("Name of the metric in reasons."),
            "query": text(
                "Prometheus query. $candidate, $stable, $model and $namespace are replaced by names.",
                rollout.LONGEST_QUERY,
                printable,
                least=1,
            ),
            "max": number(
                "Maximum value; two observations in a row above it fail the version.",
                -rollout.LARGEST_VALUE,
                rollout.LARGEST_VALUE,
            ),
        },
        required=["name", "query", "max"],
    )
    return array(
        "Prometheus metrics to compare in addition.",
        metric,
        rollout.MOST_METRICS,
        rule("self.all(one, self.exists_one(other, other.name == one.name))", "each name must be its own"),
    )
