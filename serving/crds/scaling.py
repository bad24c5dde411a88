"""The schema of a Model's scaling fields: bounds, defaults and words are those of `serving.types.scaling`. Pure."""

from __future__ import annotations

from autoscaler import schedules
from clusters.base.durations import format_duration
from serving.crds import texts
from serving.crds.schema import Schema, array, integer, mapping, matches, number, rule, text, words_of
from serving.types import defaults, scaling

_MOST = scaling.MOST_REPLICAS


def make_scaling() -> dict[str, Schema]:
    """The schemas of the fields, by their names."""
    return {
        "minReplicas": integer(f"Replicas that stay when idle; default {defaults.MIN_REPLICAS}.", 0, _MOST),
        "maxReplicas": integer(
            f"Replicas at most; default {defaults.MAX_REPLICAS}, or minReplicas when that is more.", 1, _MOST
        ),
        "scaleTarget": number(
            f"Work that one replica holds at once, in slots; default {defaults.SCALE_TARGET:g}.",
            scaling.LEAST_TARGET,
            scaling.MOST_TARGET,
        ),
        "targetUtilization": number(
            f"Share of the slots that scaling aims at; default {defaults.TARGET_UTILIZATION:g}.",
            scaling.LEAST_TARGET,
            1.0,
        ),
        "scaleToZeroAfter": texts.duration(
            f"Time without a request until the last replica goes; default {scaling.AUTO_TEXT}: the longer a start "
            "takes, the longer it stays, a minute at least.",
            scaling.LEAST_IDLE,
            scaling.LONGEST_IDLE,
            word=scaling.AUTO_TEXT,
        ),
        "holdQueue": integer(
            f"Requests held for each revision while it starts; default {defaults.HOLD_QUEUE}.", 1, scaling.MOST_HELD
        ),
        "latencyObjective": texts.duration(
            "Within which most answers (95 %) are to be given: when they are not and replicas are busy, more are "
            "started; none when absent.",
            scaling.LEAST_OBJECTIVE,
            scaling.LONGEST_OBJECTIVE,
        ),
        "schedules": _schedules(),
    }


def scaling_rules() -> list[Schema]:
    """Rules that join several of the fields."""
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
        "Replicas that are wanted at certain times.",
        {
            "cron": text("When the window opens, as in crontab: 0 8 * * 1-5.", schedules.LONGEST_CRON, cron),
            "timeZone": text(
                f"By whose clock, as IANA names it: Europe/Berlin; default {schedules.DEFAULT_ZONE}.",
                schedules.LONGEST_ZONE,
                zone,
            ),
            "duration": texts.duration(
                f"How long it stays open, at most {format_duration(schedules.LONGEST)}.",
                scaling.LEAST_WINDOW,
                schedules.LONGEST,
            ),
            "minReplicas": integer("Replicas at least while it is open.", 1, _MOST),
        },
        required=["cron", "duration", "minReplicas"],
    )
    return array(
        "Least numbers of replicas by the clock; of windows that are open at once the largest counts.",
        schedule,
        schedules.MOST_SCHEDULES,
    )
