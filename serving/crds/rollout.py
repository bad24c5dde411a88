"""The schema of `spec.rollout`: bounds, defaults and words are those of `serving.types.rollout`. Pure."""

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
    """The schema of `rollout`."""
    step, deadline, warm = map(format_duration, (rollout.STEP_DURATION, rollout.PROGRESS_DEADLINE, rollout.KEEP_WARM))
    return mapping(
        "How a new version gets the traffic, step by step, judged by what it answers; absent: all at once.",
        {
            "steps": _steps(),
            "stepDuration": texts.duration(
                f"Of each step at least; default {step}.", rollout.LEAST_INTERVAL, rollout.LONGEST_STEP
            ),
            "progressDeadline": texts.duration(
                f"Until a step is in force, else the rollout ends; default {deadline}.",
                rollout.LEAST_INTERVAL,
                rollout.LONGEST_STEP,
            ),
            "maxSurge": integer(
                f"Replicas above the count that stood before; default {rollout.MAX_SURGE}.", 0, rollout.MOST_SURGE
            ),
            "judge": _judge(),
            "onInsufficientTraffic": choice(
                "What a step comes to whose time is over before its requests say anything; default "
                f"{rollout.ON_INSUFFICIENT_TRAFFIC}.",
                _CHOICES,
                f"must be {' or '.join(_CHOICES)}",
            ),
            "keepWarm": texts.duration(
                f"Without a request, until the version before gives up its last replica; default {warm}.",
                0.0,
                rollout.LONGEST_STEP,
            ),
            **{name: opaque(f"Of a later release: {words}.") for name, words in rollout.LATER_ROLLOUT.items()},
        },
        *refused(rollout.LATER_ROLLOUT),
    )


def _steps() -> Schema:
    return array(
        f"Percents of the new version; default {', '.join(map(str, rollout.STEPS))}.",
        integer("Of the traffic.", 1, rollout.ALL),
        rollout.MOST_STEPS,
        rule(
            f"self[size(self) - 1] == {rollout.ALL} && self.all(one, self.exists_one(other, other == one)) "
            "&& self.isSorted()",
            f"must ascend and end with {rollout.ALL}",
        ),
    )


def _judge() -> Schema:
    return mapping(
        "What the new version is held to.",
        {
            "interval": texts.duration(
                f"Between two looks; default {format_duration(rollout.INTERVAL)}.",
                rollout.LEAST_INTERVAL,
                rollout.LONGEST_INTERVAL,
            ),
            "maxErrorRate": number(
                "Share of requests that may fail above the stable version's share; default "
                f"{rollout.MAX_ERROR_RATE:g}.",
                0.0,
                1.0,
            ),
            "maxLatencyRatio": number(
                f"Latency by that of the stable version at most; default {rollout.MAX_LATENCY_RATIO:g}.",
                1.0,
                rollout.LARGEST_RATIO,
            ),
            "quantile": number(
                f"Of the latency that is compared; default {rollout.QUANTILE:g}.",
                rollout.LEAST_QUANTILE,
                rollout.MOST_QUANTILE,
            ),
            "maxStableErrorRate": number(
                "Share of requests that the stable version may fail; beyond it the rollout is held, since there is "
                f"nothing to compare with; default {rollout.MAX_STABLE_ERROR_RATE:g}.",
                0.0,
                1.0,
            ),
            "count4xx": flag("Whether 4xx answers count as errors of the version; default false."),
            "metrics": _metrics(),
        },
    )


def _metrics() -> Schema:
    printable = rule(matches(f"(?: |{texts.PRINTABLE})*"), words_of(rollout.query_fault, "\n"))
    metric = mapping(
        "A further metric.",
        {
            "name": texts.label("What reasons call it."),
            "query": text(
                "What Prometheus is asked; $candidate, $stable, $model and $namespace stand for names.",
                rollout.LONGEST_QUERY,
                printable,
                least=1,
            ),
            "max": number(
                "The most that it may answer, at two looks in a row.", -rollout.LARGEST_VALUE, rollout.LARGEST_VALUE
            ),
        },
        required=["name", "query", "max"],
    )
    return array(
        "Further metrics.",
        metric,
        rollout.MOST_METRICS,
        rule("self.all(one, self.exists_one(other, other.name == one.name))", "each name must be its own"),
    )
