"""The table of a Model's scaling fields (see `tables`), which act on existing revisions at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from autoscaler import schedules
from autoscaler import types as apis
from autoscaler.schedules import Schedule
from serving.types import formats
from serving.types.fields import Duration, Integer, Number, Text
from serving.types.schema import rule
from serving.types.tables import Items, Nested

MOST_REPLICAS: Final = apis.MAX_REPLICAS
"""Replicas of one revision; more is certainly a typing error."""
MAX_REPLICAS: Final = 4
"""Default maximum, which fits a laptop."""
MOST_TARGET: Final = 1000
"""Slots (Knative's container-concurrency-max-limit)."""
LEAST_TARGET: Final = 0.01
"""Slots (Knative's smallest target)."""
MOST_PRIORITY: Final = 1000
LEAST_WEIGHT, MOST_WEIGHT = 0.01, 1000.0
MOST_HELD: Final = 100_000
"""Requests held for one revision: at 64 KiB each they need 6 GiB."""


@dataclass(frozen=True, slots=True)
class ScheduleEntry:
    """A minimum number of replicas at certain times."""

    cron: Annotated[str, Text("Start of the window as a cron expression.", formats.CRON)]
    duration: Annotated[float, Duration("Length of the window.", 1.0, schedules.LONGEST)]
    min_replicas: Annotated[int, Integer("Minimum number of replicas during the window.", 1, MOST_REPLICAS)]
    time_zone: Annotated[str, Text("IANA time zone.", formats.ZONE)] = schedules.DEFAULT_ZONE

    def schedule(self) -> Schedule:
        """Return the autoscaler's value."""
        return Schedule(self.cron, self.duration, self.min_replicas, self.time_zone)


@dataclass(frozen=True, slots=True)
class GpuShare:
    """The order in which Models and warm pools get GPUs, where not all fit."""

    priority: Annotated[
        int, Integer("Who gets GPUs first where not all fit: a higher number before a lower one.", 0, MOST_PRIORITY)
    ] = 0
    weight: Annotated[
        float,
        Number("Share of GPUs, relative to others of the same priority in the namespace.", LEAST_WEIGHT, MOST_WEIGHT),
    ] = 1.0


EVEN_SHARE: Final = GpuShare()


@dataclass(frozen=True, slots=True)
class Scaling:
    """The scaling fields of a Model; times in seconds.

    `scale_to_zero_after` may be `autoscaler.types.AUTO`; a `latency_objective` of 0 is none.
    """

    min_replicas: Annotated[int, Integer("Minimum number of replicas.", 0, MOST_REPLICAS)] = 0
    max_replicas: Annotated[
        int, Integer("Maximum number of replicas.", 1, MOST_REPLICAS, note=", or minReplicas if that is larger")
    ] = MAX_REPLICAS
    scale_target: Annotated[
        float, Number("Concurrent requests that scaling plans for each replica.", LEAST_TARGET, MOST_TARGET)
    ] = 4.0
    target_utilization: Annotated[  # Knative's container-concurrency-target-percentage
        float, Number("Fraction of scaleTarget that scaling aims at.", LEAST_TARGET, 1.0)
    ] = 0.7
    scale_to_zero_after: Annotated[
        float,
        Duration(
            "Time without requests before scaling to zero.",
            apis.LEAST_IDLE,
            apis.LONGEST_IDLE,
            word=("auto", apis.AUTO),
            note=", which is at least a minute, and longer if starts take longer",
        ),
    ] = apis.AUTO
    hold_queue: Annotated[
        int, Integer("Maximum number of requests held for a revision while it starts.", 1, MOST_HELD)
    ] = 1000
    latency_objective: Annotated[
        float,
        Duration(
            "Response time that 95 % of responses should meet. If they do not and replicas are busy, replicas are "
            "added. No objective if absent.",
            apis.LEAST_OBJECTIVE,
            apis.LONGEST_OBJECTIVE,
        ),
    ] = 0.0
    schedules: Annotated[
        tuple[Schedule, ...],
        Items(
            "Minimum numbers of replicas by time. If windows overlap, the largest number applies.",
            Nested("", ScheduleEntry, ScheduleEntry.schedule),
            schedules.MOST_SCHEDULES,
        ),
    ] = ()

    RULES: ClassVar = (
        rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "must be at most maxReplicas",
            ".minReplicas",
        ),
        rule(
            "!has(self.schedules) || !has(self.maxReplicas) || "
            "self.schedules.all(one, one.minReplicas <= self.maxReplicas)",
            "minReplicas must be at most maxReplicas",
            ".schedules",
        ),
    )

    @staticmethod
    def complete(values: dict[str, Any]) -> None:
        """Raise the default maximum to the largest minimum."""
        least = max(values.get("min_replicas", 0), *(one.min_replicas for one in values.get("schedules", ())), 0)
        values.setdefault("max_replicas", max(MAX_REPLICAS, least))

    def faults(self, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Check the rules in Python."""
        most = f"must be at most maxReplicas ({self.max_replicas})"
        if self.min_replicas > self.max_replicas:
            yield "minReplicas", f"{most}, not {self.min_replicas}"
        for index, schedule in enumerate(self.schedules):
            if schedule.min_replicas > self.max_replicas:
                yield f"schedules[{index}].minReplicas", f"{most}, not {schedule.min_replicas}"
