"""How a Model scales: reads the fields that act on living revisions at once, with their bounds and defaults. Pure."""

from __future__ import annotations

from autoscaler import schedules
from autoscaler import types as apis
from autoscaler.schedules import Schedule
from serving.types import defaults
from serving.types.model import Scaling
from serving.types.reader import Fields

MOST_REPLICAS = apis.MAX_REPLICAS
"""Of one revision: more is a typing error on any cluster that Knodel knows."""
MOST_TARGET = 1000
"""Slots (Knative's container-concurrency-max-limit)."""
LEAST_TARGET = 0.01
"""Slots (Knative's least target)."""
LEAST_IDLE, LONGEST_IDLE = apis.LEAST_IDLE, apis.LONGEST_IDLE
"""s; at most a week: who wants to stay longer writes minReplicas."""
MOST_HELD = 100_000
"""Requests held for one revision: at 64 KiB each they fill 6 GiB."""
LEAST_OBJECTIVE, LONGEST_OBJECTIVE = apis.LEAST_OBJECTIVE, apis.LONGEST_OBJECTIVE
"""s."""
LEAST_WINDOW = 1.0
"""s of a schedule's window."""
AUTO_TEXT = "auto"
"""How `scaleToZeroAfter` says `apis.AUTO`."""


def read_scaling(fields: Fields) -> Scaling:
    """The scaling fields of a Model's spec."""
    least = fields.integer("minReplicas", defaults.MIN_REPLICAS, 0, MOST_REPLICAS)
    by_the_clock = _read_schedules(fields)
    needed = max(least, *(schedule.min_replicas for schedule in by_the_clock), 0)
    most = fields.integer("maxReplicas", max(defaults.MAX_REPLICAS, needed), 1, MOST_REPLICAS)
    if least > most:
        fields.refuse("minReplicas", f"must be at most maxReplicas ({most}), not {least}")
    for index, schedule in enumerate(by_the_clock):
        if schedule.min_replicas > most:
            message = f"must be at most maxReplicas ({most}), not {schedule.min_replicas}"
            fields.refuse(f"schedules[{index}].minReplicas", message)
    return Scaling(
        min_replicas=least,
        max_replicas=most,
        scale_target=fields.number("scaleTarget", defaults.SCALE_TARGET, LEAST_TARGET, MOST_TARGET),
        target_utilization=fields.number("targetUtilization", defaults.TARGET_UTILIZATION, LEAST_TARGET, 1.0),
        scale_to_zero_after=_read_idle(fields),
        hold_queue=fields.integer("holdQueue", defaults.HOLD_QUEUE, 1, MOST_HELD),
        latency_objective=fields.seconds("latencyObjective", 0.0, LEAST_OBJECTIVE, LONGEST_OBJECTIVE),
        schedules=by_the_clock,
    )


def _read_idle(fields: Fields) -> float:
    if fields.raw("scaleToZeroAfter") == AUTO_TEXT:
        return apis.AUTO
    return fields.seconds("scaleToZeroAfter", defaults.SCALE_TO_ZERO_AFTER, LEAST_IDLE, LONGEST_IDLE)


def _read_schedules(fields: Fields) -> tuple[Schedule, ...]:
    """Those whose fields are all well; the faults of the others are recorded."""
    read = []
    for item in fields.items("schedules", schedules.MOST_SCHEDULES):
        before = len(fields.errors)
        schedule = Schedule(
            cron=item.text("cron", schedules.cron_fault, required=True),
            time_zone=item.text("timeZone", schedules.zone_fault, schedules.DEFAULT_ZONE),
            duration=item.seconds("duration", 0.0, LEAST_WINDOW, schedules.LONGEST),
            min_replicas=item.integer("minReplicas", 0, 1, MOST_REPLICAS, required=True),
        )
        if not item.has("duration"):
            item.refuse("duration", "is required: how long the window stays open, such as 10h")
        if len(fields.errors) == before:
            read.append(schedule)
    return tuple(read)
