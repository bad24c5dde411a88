"""The table of the fields of `spec.rollout` (see `tables`), and the annotation with a command for a rollout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, Final, Literal, cast, get_args

from serving.types import formats
from serving.types.fields import Duration, Flag, Format, Integer, Number, Text
from serving.types.reader import short_repr
from serving.types.schema import rule
from serving.types.tables import Items, Later, Nested

OnInsufficientTraffic = Literal["hold", "promote", "rollback"]
Verb = Literal["pause", "abort", "promote"]

ALL: Final = 100
"""Percent."""
STEP_DURATION: Final = 60.0
"""s: the default minimum time of a step."""
LONGEST_STEP: Final = 604_800.0
"""s; a week."""
LONGEST_QUERY: Final = 4096
"""Characters of one query."""
LARGEST_VALUE: Final = 1e15
"""Above 2^53, a double no longer represents each whole number."""


def query_fault(query: str) -> str:
    """Return the fault of a Prometheus query; empty for a valid one."""
    if not query.isprintable():
        return "must be one line of printable characters"
    if not 1 <= len(query) <= LONGEST_QUERY:
        return f"must be 1 to {LONGEST_QUERY} characters, not {len(query)}"
    return ""


@dataclass(frozen=True, slots=True)
class MetricRule:
    """A Prometheus metric."""

    name: Annotated[str, Text("Name of the metric in reasons.", formats.LABEL)]
    query: Annotated[
        str,
        Text(
            "Prometheus query. $candidate, $stable, $model and $namespace are replaced by names.",
            Format(query_fault, LONGEST_QUERY, (formats.follows(formats.LINE, query_fault, "\n"),), least=1),
        ),
    ]
    max: Annotated[
        float,
        Number("Maximum value; two observations in a row above it fail the version.", -LARGEST_VALUE, LARGEST_VALUE),
    ]


def _metric_faults(metrics: list[MetricRule]) -> Iterator[str]:
    for name, count in Counter(metric.name for metric in metrics).items():
        if count > 1:
            yield f"name {name!r} is given {count} times: each must be unique"


@dataclass(frozen=True, slots=True)
class Judge:
    """Criteria for the new version.

    `interval` is in seconds, rates and quantile are shares of 1. `max_error_rate` is added to the stable version's
    rate, and `max_latency_ratio` multiplies its latency. The judge rejects a version that fails every fifth request at
    once. Compared with a stable version that fails as often, such a candidate would pass: `max_stable_error_rate`
    prevents it.
    """

    interval: Annotated[  # each judgement reads every replica, and writes the Model's status
        float, Duration("Time between two observations.", 1.0, 3600.0)
    ] = 10.0
    max_error_rate: Annotated[float, Number("Maximum error rate above the stable version's.", 0.0, 1.0)] = 0.01
    max_latency_ratio: Annotated[
        float, Number("Maximum latency as a multiple of the stable version's.", 1.0, 100.0)
    ] = 1.25
    quantile: Annotated[  # above 0.999 no rollout has enough requests, below the median slow answers do not count
        float, Number("Latency quantile that is compared.", 0.5, 0.999)
    ] = 0.95
    metrics: Annotated[
        tuple[MetricRule, ...],
        Items(
            "Prometheus metrics to compare in addition.",
            Nested("", MetricRule),
            10,
            (rule("self.all(one, self.exists_one(other, other.name == one.name))", "each name must be unique"),),
            _metric_faults,
        ),
    ] = ()
    max_stable_error_rate: Annotated[
        float,
        Number(
            "Maximum error rate of the stable version. Above it the rollout is held, since there is nothing to "
            "compare with.",
            0.0,
            1.0,
        ),
    ] = 0.2
    count_4xx: Annotated[bool, Flag("Whether 4xx responses count as errors of the version.")] = False


def _step_faults(steps: list[int]) -> Iterator[str]:
    if steps[-1] != ALL or any(one >= other for one, other in pairwise(steps)):
        yield f"must ascend and end with {ALL}, not {', '.join(map(str, steps))}"


@dataclass(frozen=True, slots=True)
class Rollout:
    """Shift traffic to a new version in judged steps. If absent, a new version gets all traffic at once.

    `steps` are in percent, the others in seconds. A rollout with more steps takes longer than a working day.
    """

    steps: Annotated[
        tuple[int, ...],
        Items(
            "Percentages of traffic to the new version.",
            Integer("Percentage of traffic.", 1, ALL),
            20,
            (
                rule(
                    f"self[size(self) - 1] == {ALL} && self.all(one, self.exists_one(other, other == one)) "
                    "&& self.isSorted()",
                    f"must ascend and end with {ALL}",
                ),
            ),
            _step_faults,
        ),
    ] = (10, 50, ALL)
    step_duration: Annotated[float, Duration("Minimum duration of a step.", 1.0, LONGEST_STEP)] = STEP_DURATION
    progress_deadline: Annotated[  # Flagger's progressDeadlineSeconds
        float,
        Duration("Time within which a step must be in force; the rollout fails otherwise.", 1.0, LONGEST_STEP),
    ] = 600.0
    max_surge: Annotated[int, Integer("Maximum number of replicas above the number before the rollout.", 0, 1000)] = 1
    judge: Annotated[Judge, Nested("", Judge)] = Judge()
    on_insufficient_traffic: Annotated[
        OnInsufficientTraffic,
        Text(
            "Decision for a step that ends with too few requests for a verdict.",
            formats.one_of(*get_args(OnInsufficientTraffic)),
        ),
    ] = "hold"
    keep_warm: Annotated[
        float, Duration("Time without requests before the previous version loses its last replica.", 0.0, LONGEST_STEP)
    ] = 600.0

    LATER: ClassVar = {
        "match": Later("routing by request headers"),
        "sticky": Later("sticky sessions"),
        "mirror": Later("mirroring of live requests"),
        "replay": Later("replay of recorded requests"),
    }


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
    return "no Prometheus is configured: set rollout.prometheusUrl in the platform's settings, or remove the metrics"


def command_fault(text: str) -> str:
    """Return the fault of the annotation with a command; empty for a valid one."""
    if parse_command(text) is not None:
        return ""
    return f"must be {', '.join(f'{verb}@REVISION' for verb in get_args(Verb))}, not {short_repr(text)}"
