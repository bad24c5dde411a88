"""Typed values of `spec.rollout`, with defaults and limits.

`validation.read_model` makes them from an object, so they are valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast, get_args

from serving.types.faults import label_fault
from serving.types.reader import Fields, short_repr

OnInsufficientTraffic = Literal["hold", "promote", "rollback"]
Verb = Literal["pause", "abort", "promote"]

ALL = 100
"""Percent."""
STEPS = (10, 50, ALL)
"""Percents of the new version: few callers first, then enough load for a comparison."""
STEP_DURATION = 60.0
"""s: the minimum time of a step."""
PROGRESS_DEADLINE = 600.0
"""s until a step must be in force at the gateway (Flagger's progressDeadlineSeconds)."""
MAX_SURGE = 1
"""Replicas above the number at the begin of a step."""
INTERVAL = 10.0
"""s between two judgements."""
MAX_ERROR_RATE = 0.01
"""By how much the share of failed requests may exceed the stable version's."""
MAX_LATENCY_RATIO = 1.25
"""Latency of the new version divided by that of the stable one, at the quantile."""
MAX_STABLE_ERROR_RATE = 0.2
"""Largest share of failed requests of a stable version that candidates are compared with. The judge rejects a version
that fails every fifth request at once. Compared with such a stable version, a candidate that fails as often would pass.
"""
QUANTILE = 0.95
"""Quantile of the latency that is compared: one request of twenty is slower."""
ON_INSUFFICIENT_TRAFFIC: OnInsufficientTraffic = "hold"
"""A version with too few requests is neither good nor bad."""
KEEP_WARM = 600.0
"""s without a request until the former version stops its last replica."""

MOST_STEPS = 20
"""A rollout with more steps takes longer than a working day."""
LONGEST_STEP = 604_800.0
"""s; a week."""
LEAST_INTERVAL = 1.0
"""s: each judgement reads every replica, and writes the Model's status."""
LONGEST_INTERVAL = 3600.0
"""s; with longer intervals the judge would find failures too late."""
MOST_SURGE = 1000
"""Replicas; no revision has more."""
LARGEST_RATIO = 100.0
"""Larger ratios have no use."""
LEAST_QUANTILE, MOST_QUANTILE = 0.5, 0.999
"""Quantiles below the median do not show slow answers; for those above 0.999 no rollout has enough requests."""
MOST_METRICS = 10
"""Queries of one judgement."""
LONGEST_QUERY = 4096
"""Characters of one query."""
LARGEST_VALUE = 1e15
"""Above 2^53, a double no longer represents each whole number."""

LATER_ROLLOUT = {
    "match": "callers chosen by their headers",
    "sticky": "callers that stay with a version",
    "mirror": "copies of live requests",
    "replay": "recorded requests",
}
"""Fields of a later release, which need features of a gateway: they are refused, never ignored."""


@dataclass(frozen=True, slots=True)
class MetricRule:
    """A metric of the judge: a Prometheus query, and the largest permitted value."""

    name: str
    query: str
    max: float


@dataclass(frozen=True, slots=True)
class Judge:
    """The criteria for a new version; `interval` in seconds, rates and quantile as shares of 1.

    `max_error_rate` is added to the stable version's rate, and `max_latency_ratio` multiplies its latency. A stable
    version with a higher error rate than `max_stable_error_rate` is not compared with. `count_4xx` counts callers'
    errors (4xx) as errors of the version.
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
    """A user's command for the rollout of one revision; it has no effect on rollouts of other revisions."""

    verb: Verb
    revision: str

    def __str__(self) -> str:
        return f"{self.verb}@{self.revision}"


def parse_command(text: str) -> Command | None:
    """Parse an annotation such as `pause@magika-00002`; None for any other text."""
    verb, at, revision = text.partition("@")
    return Command(cast(Verb, verb), revision) if at and revision and verb in get_args(Verb) else None


def metrics_fault(metrics: Sequence[object], prometheus_url: str) -> str:
    """Return the fault of metrics on a platform without a Prometheus; empty without metrics or with a Prometheus."""
    if not metrics or prometheus_url:
        return ""
    return "no Prometheus is set: set rollout.prometheusUrl in the platform's settings, or remove the metrics"


def command_fault(text: str) -> str:
    """Return the fault of the annotation with a command; empty for a valid one."""
    if parse_command(text) is not None:
        return ""
    return f"must be {', '.join(f'{verb}@REVISION' for verb in get_args(Verb))}, not {short_repr(text)}"


def query_fault(query: str) -> str:
    """Return the fault of a Prometheus query; empty for a valid one."""
    if not query.isprintable():
        return "must be one line of printable characters"
    if not 1 <= len(query) <= LONGEST_QUERY:
        return f"must be 1 to {LONGEST_QUERY} characters, not {len(query)}"
    return ""


def read_rollout(fields: Fields | None) -> Rollout | None:
    """Read `spec.rollout`, with defaults for absent fields. Faults are added to the reader's errors."""
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
        given = f"{len(value)} entries" if isinstance(value, list) else short_repr(value)
        fields.refuse("steps", f"must be a list of 1 to {MOST_STEPS} percents, not {given}")
        return STEPS
    for index, step in enumerate(value):
        if isinstance(step, bool) or not isinstance(step, int) or not 1 <= step <= ALL:
            fields.refuse(f"steps[{index}]", f"must be a whole number from 1 to {ALL}, not {short_repr(step)}")
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
            fields.refuse("metrics", f"name {name!r} is given twice: each must be unique")
        query = item.text("query", query_fault, required=True)
        if not item.has("max"):
            item.refuse("max", "is required: the largest permitted value of the query")
        metrics.append(MetricRule(name, query, item.number("max", 0.0, -LARGEST_VALUE, LARGEST_VALUE)))
    return tuple(metrics)
