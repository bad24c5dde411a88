"""How a new version gets the traffic of the one before: `spec.rollout` as typed values, with its defaults and bounds.

`validation.read_model` makes these from an object; what is here has been checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast, get_args

from serving.types.faults import label_fault
from serving.types.reader import Fields, show

OnInsufficientTraffic = Literal["hold", "promote", "rollback"]
Verb = Literal["pause", "abort", "promote"]

ALL = 100
"""Percent."""
STEPS = (10, 50, ALL)
"""Percent of the new version, one after the other: few callers first, then enough to compare load."""
STEP_DURATION = 60.0
"""s that a step takes at least."""
PROGRESS_DEADLINE = 600.0
"""s until a step must be in force at the gateway (Flagger's progressDeadlineSeconds)."""
MAX_SURGE = 1
"""Replicas above the count that stood before."""
INTERVAL = 10.0
"""s between two looks of the judge."""
MAX_ERROR_RATE = 0.01
"""Share of requests that may fail above the stable version's share."""
MAX_LATENCY_RATIO = 1.25
"""Latency of the new version by that of the stable one, at the quantile."""
MAX_STABLE_ERROR_RATE = 0.2
"""Share of requests that the stable version may fail and still be compared with: one that fails every fifth request is
itself as bad as what the judge takes back at once, and a candidate that fails as often would pass."""
QUANTILE = 0.95
"""Of the latency that is compared: what one request of twenty exceeds."""
ON_INSUFFICIENT_TRAFFIC: OnInsufficientTraffic = "hold"
"""A version that nobody asked for is neither good nor bad."""
KEEP_WARM = 600.0
"""s without a request until the version before gives up its last replica."""

MOST_STEPS = 20
"""A rollout of more takes longer than a working day watches it."""
LONGEST_STEP = 604_800.0
"""s; a week."""
LEAST_INTERVAL = 1.0
"""s: each look reads every replica, and writes the Model's status."""
LONGEST_INTERVAL = 3600.0
"""s; who looks less often than hourly does not judge."""
MOST_SURGE = 1000
"""Replicas; no revision has more."""
LARGEST_RATIO = 100.0
"""A hundred times slower is beyond any wish."""
LEAST_QUANTILE, MOST_QUANTILE = 0.5, 0.999
"""Below the median nothing slow is seen; beyond one of a thousand no rollout has enough requests."""
MOST_METRICS = 10
"""Queries of one look."""
LONGEST_QUERY = 4096
"""Characters of one query."""
LARGEST_VALUE = 1e15
"""Beyond it a double no longer counts one by one (2^53)."""

LATER_ROLLOUT = {
    "match": "callers chosen by their headers",
    "sticky": "callers that stay with a version",
    "mirror": "copies of live requests",
    "replay": "recorded requests",
}
"""Fields of a later release, which need a gateway of our own: refused by name, never ignored."""


@dataclass(frozen=True, slots=True)
class MetricRule:
    """A further metric: the answer of a Prometheus query, and the most that it may be."""

    name: str
    query: str
    max: float


@dataclass(frozen=True, slots=True)
class Judge:
    """What the new version is held to; `interval` in seconds, rates and quantile as shares of 1.

    `max_error_rate` is above the stable version's own rate, `max_latency_ratio` a multiple of its latency. A stable
    version with more errors than `max_stable_error_rate` is not compared with. `count_4xx` counts the caller's errors
    (4xx) as errors of the version.
    """

    interval: float = INTERVAL
    max_error_rate: float = MAX_ERROR_RATE
    max_latency_ratio: float = MAX_LATENCY_RATIO
    quantile: float = QUANTILE
    metrics: tuple[MetricRule, ...] = ()
    max_stable_error_rate: float = MAX_STABLE_ERROR_RATE
    count_4xx: bool = False


@dataclass(frozen=True, slots=True)
class Rollout:
    """`spec.rollout` with its defaults; `steps` in percent, ascending, the last 100; times in seconds."""

    steps: tuple[int, ...] = STEPS
    step_duration: float = STEP_DURATION
    progress_deadline: float = PROGRESS_DEADLINE
    max_surge: int = MAX_SURGE
    judge: Judge = Judge()
    on_insufficient_traffic: OnInsufficientTraffic = ON_INSUFFICIENT_TRAFFIC
    keep_warm: float = KEEP_WARM


@dataclass(frozen=True, slots=True)
class Command:
    """What a person wants of the rollout of one revision; one of another revision means nothing any more."""

    verb: Verb
    revision: str

    def __str__(self) -> str:
        return f"{self.verb}@{self.revision}"


def parse_command(text: str) -> Command | None:
    """The command in an annotation such as `pause@magika-00002`; None for any other text."""
    verb, at, revision = text.partition("@")
    return Command(cast(Verb, verb), revision) if at and revision and verb in get_args(Verb) else None


def metrics_fault(metrics: Sequence[object], prometheus_url: str) -> str:
    """What is wrong with further metrics on a platform that asks this Prometheus; empty when nothing is."""
    if not metrics or prometheus_url:
        return ""
    return "nobody answers a query here: set rollout.prometheusUrl in the platform's settings, or take the metrics away"


def command_fault(text: str) -> str:
    """What is wrong with the annotation; empty when nothing is."""
    if parse_command(text) is not None:
        return ""
    return f"must be {', '.join(f'{verb}@REVISION' for verb in get_args(Verb))}, not {show(text)}"


def query_fault(query: str) -> str:
    """What is wrong with a Prometheus query; empty when nothing is."""
    if not query.isprintable():
        return "must be one line of printable characters"
    if not 1 <= len(query) <= LONGEST_QUERY:
        return f"must be 1 to {LONGEST_QUERY} characters, not {len(query)}"
    return ""


def read_rollout(fields: Fields | None) -> Rollout | None:
    """The fields of `spec.rollout`, with defaults for what is absent; faults go to the reader's errors."""
    if fields is None:
        return None
    read = Rollout(
        steps=_read_steps(fields),
        step_duration=fields.seconds("stepDuration", STEP_DURATION, LEAST_INTERVAL, LONGEST_STEP),
        progress_deadline=fields.seconds("progressDeadline", PROGRESS_DEADLINE, LEAST_INTERVAL, LONGEST_STEP),
        max_surge=fields.integer("maxSurge", MAX_SURGE, 0, MOST_SURGE),
        judge=_read_judge(fields.child("judge")),
        on_insufficient_traffic=cast(
            OnInsufficientTraffic,
            fields.choice("onInsufficientTraffic", get_args(OnInsufficientTraffic), ON_INSUFFICIENT_TRAFFIC),
        ),
        keep_warm=fields.seconds("keepWarm", KEEP_WARM, 0.0, LONGEST_STEP),
    )
    fields.close(LATER_ROLLOUT)
    return read


def _read_steps(fields: Fields) -> tuple[int, ...]:
    value = fields.raw("steps")
    if value is None:
        return STEPS
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_STEPS:
        given = f"{len(value)} entries" if isinstance(value, list) else show(value)
        fields.refuse("steps", f"must be a list of 1 to {MOST_STEPS} percents, not {given}")
        return STEPS
    for index, step in enumerate(value):
        if isinstance(step, bool) or not isinstance(step, int) or not 1 <= step <= ALL:
            fields.refuse(f"steps[{index}]", f"must be a whole number from 1 to {ALL}, not {show(step)}")
            return STEPS
    if value[-1] != ALL or any(one >= other for one, other in pairwise(value)):
        fields.refuse("steps", f"must ascend and end with {ALL}, not {', '.join(map(str, value))}")
        return STEPS
    return tuple(value)


def _read_judge(fields: Fields) -> Judge:
    read = Judge(
        interval=fields.seconds("interval", INTERVAL, LEAST_INTERVAL, LONGEST_INTERVAL),
        max_error_rate=fields.number("maxErrorRate", MAX_ERROR_RATE, 0.0, 1.0),
        max_latency_ratio=fields.number("maxLatencyRatio", MAX_LATENCY_RATIO, 1.0, LARGEST_RATIO),
        quantile=fields.number("quantile", QUANTILE, LEAST_QUANTILE, MOST_QUANTILE),
        max_stable_error_rate=fields.number("maxStableErrorRate", MAX_STABLE_ERROR_RATE, 0.0, 1.0),
        count_4xx=fields.flag("count4xx"),
        metrics=_read_metrics(fields),
    )
    fields.close()
    return read


def _read_metrics(fields: Fields) -> tuple[MetricRule, ...]:
    metrics: list[MetricRule] = []
    for item in fields.items("metrics", MOST_METRICS):
        name = item.text("name", label_fault, required=True)
        if name and name in (metric.name for metric in metrics):
            fields.refuse("metrics", f"name {name!r} stands twice: each must be its own")
        query = item.text("query", query_fault, required=True)
        if not item.has("max"):
            item.refuse("max", "is required: the most that the query may answer")
        metrics.append(MetricRule(name, query, item.number("max", 0.0, -LARGEST_VALUE, LARGEST_VALUE)))
    return tuple(metrics)
