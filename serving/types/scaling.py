"""Read the scaling fields of a Model, with their limits and defaults. They act on existing revisions at once. Pure."""

from __future__ import annotations

from autoscaler import schedules
from autoscaler import types as apis
from autoscaler.schedules import Schedule
from serving.types import defaults
from serving.types.model import Scaling
from serving.types.reader import Fields

MOST_REPLICAS = apis.MAX_REPLICAS
"""Replicas of one revision; more is certainly a typing error."""
MOST_TARGET = 1000
"""Slots (Knative's container-concurrency-max-limit)."""
LEAST_TARGET = 0.01
"""Slots (Knative's smallest target)."""
LEAST_IDLE, LONGEST_IDLE = apis.LEAST_IDLE, apis.LONGEST_IDLE
"""s; at most a week: minReplicas keeps replicas for longer."""
MOST_HELD = 100_000
"""Requests held for one revision: at 64 KiB each they need 6 GiB."""
LEAST_OBJECTIVE, LONGEST_OBJECTIVE = apis.LEAST_OBJECTIVE, apis.LONGEST_OBJECTIVE
"""s of `latencyObjective`."""
LEAST_WINDOW = 1.0
"""s of a schedule's window."""
AUTO_TEXT = "auto"
"""The value of `scaleToZeroAfter` for `apis.AUTO`."""


def read_scaling(fields: Fields) -> Scaling:
    """Read the scaling fields of a Model's spec."""

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
        scale_to_zero_after=apis.AUTO
        if fields.raw("scaleToZeroAfter") == AUTO_TEXT
        else fields.seconds("scaleToZeroAfter", defaults.SCALE_TO_ZERO_AFTER, LEAST_IDLE, LONGEST_IDLE),
        hold_queue=fields.integer("holdQueue", defaults.HOLD_QUEUE, 1, MOST_HELD),
        latency_objective=fields.seconds("latencyObjective", 0.0, LEAST_OBJECTIVE, LONGEST_OBJECTIVE),
        schedules=by_the_clock,
    )


def _read_schedules(fields: Fields) -> tuple[Schedule, ...]:
    """Read the valid schedules; the faults of the others are added to the reader's errors."""
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
