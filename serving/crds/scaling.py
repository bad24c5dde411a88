"""The schema of a Model's scaling fields, with the bounds and defaults of `serving.types.scaling`. Pure."""

from __future__ import annotations

from autoscaler import schedules
from clusters.base.durations import format_duration
from serving.crds import texts
from serving.crds.schema import Schema, array, integer, mapping, matches, number, rule, text, words_of
from serving.types import defaults, scaling

_MOST = scaling.MOST_REPLICAS


def make_scaling() -> dict[str, Schema]:
    """Return the schemas by field name."""
    return {
        "minReplicas": integer(f"Minimum number of replicas. Default: {defaults.MIN_REPLICAS}.", 0, _MOST),
        "maxReplicas": integer(
            f"Maximum number of replicas. Default: {defaults.MAX_REPLICAS}, or minReplicas if that is larger.", 1, _MOST
        ),
        "scaleTarget": number(
            f"Concurrent requests that scaling plans for each replica. Default: {defaults.SCALE_TARGET:g}.",
            scaling.LEAST_TARGET,
            scaling.MOST_TARGET,
        ),
        "targetUtilization": number(
            f"Fraction of scaleTarget that scaling aims at. Default: {defaults.TARGET_UTILIZATION:g}.",
            scaling.LEAST_TARGET,
            1.0,
        ),
        "scaleToZeroAfter": texts.duration(
            f"Time without requests before scaling to zero. Default: {scaling.AUTO_TEXT}, which is at least a minute, "
            "and longer if starts take longer.",
            scaling.LEAST_IDLE,
            scaling.LONGEST_IDLE,
            word=scaling.AUTO_TEXT,
        ),
        "holdQueue": integer(
            f"Maximum number of requests held for a revision while it starts. Default: {defaults.HOLD_QUEUE}.",
            1,
            scaling.MOST_HELD,
        ),
        "latencyObjective": texts.duration(
            "Response time that 95 % of responses should meet. If they do not and replicas are busy, replicas are "
            "added. No objective if absent.",
            scaling.LEAST_OBJECTIVE,
            scaling.LONGEST_OBJECTIVE,
        ),
        "schedules": _schedules(),
    }


def scaling_rules() -> list[Schema]:
    """Return the rules that involve several fields."""
    return [
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
    ]


def _schedules() -> Schema:
    cron = rule(matches(schedules.CRON.pattern), words_of(schedules.cron_fault, "-"))
    zone = rule(matches(schedules.ZONE.pattern), words_of(schedules.zone_fault, "-"))
    schedule = mapping(
        "A minimum number of replicas at certain times.",
        {
            "cron": text(
                "Start of the window as a cron expression, for example 0 8 * * 1-5.", schedules.LONGEST_CRON, cron
            ),
            "timeZone": text(
                f"IANA time zone, for example Europe/Berlin. Default: {schedules.DEFAULT_ZONE}.",
                schedules.LONGEST_ZONE,
                zone,
            ),
            "duration": texts.duration(
                f"Length of the window, at most {format_duration(schedules.LONGEST)}.",
                scaling.LEAST_WINDOW,
                schedules.LONGEST,
            ),
            "minReplicas": integer("Minimum number of replicas during the window.", 1, _MOST),
        },
        required=["cron", "duration", "minReplicas"],
    )
    return array(
        "Minimum numbers of replicas by time. If windows overlap, the largest number applies.",
        schedule,
        schedules.MOST_SCHEDULES,
    )
