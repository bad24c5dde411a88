"""The schema of `status.rollout`, as `serving.reconciler.rollout.state` writes it. Pure; types and no bounds."""

from __future__ import annotations

from serving.crds.schema import Schema, listing, plain, record

_COUNT = plain("integer", format="int64")


def make_rollout_status() -> Schema:
    """Return the schema of `rollout`. It is atomic: an apply would turn an emptied granular map into null."""
    schema = record(
        "The last rollout.",
        {
            "phase": plain("string", "Progressing, Paused, Promoted, RolledBack or Failed."),
            "candidate": plain("string", "The new revision."),
            "stable": plain("string", "The revision that had all traffic before."),
            "step": plain("integer", "Index of the step, from 0.", format="int32"),
            "percent": plain("integer", "Percentage of traffic that the candidate should have now.", format="int32"),
            "startedAt": plain("string", "Creation time of the candidate."),
            "since": plain("string", "Time at which that percentage was set."),
            "seenAt": plain("string", "Time at which the step was seen in force at the gateway."),
            "pausedAt": plain("string", "Time at which it was paused."),
            "downSince": plain("string", "Time since when a candidate with traffic is not ready."),
            "endedAt": plain("string", "Time of its end."),
            "verdict": _verdict(),
            "reasons": listing("Reasons for the present phase.", plain("string")),
            "counts": record(
                "Responses of both versions since the percentage changed.",
                {
                    "stable": _counts("The stable version."),
                    "candidate": _counts("The candidate."),
                    "baseline": _counts("The stable version in an earlier step, for a step that leaves it no traffic."),
                },
            ),
            "passed": listing("Completed steps.", _passed()),
            "stood": {
                **plain("object", "Replicas of the stable version at the start of the step, by Configuration."),
                "additionalProperties": _COUNT,
            },
            "steady": plain("boolean", "Whether averages of the load contain only traffic of this step."),
        },
    )
    return schema | {"x-kubernetes-map-type": "atomic"}


def _verdict() -> Schema:
    return record(
        "The judge's last observation.",
        {
            "decision": plain("string", "wait, hold, pass or fail."),
            "at": plain("string", "Time of the decision."),
            "reasons": listing("Reasons of the decision.", plain("string")),
            "numbers": {
                **plain("object", "Rates, bounds and request counts behind the decision."),
                "additionalProperties": plain("number", format="double"),
            },
        },
    )


def _counts(about: str) -> Schema:
    return record(
        about,
        {
            "requests": plain("integer", "Responses to requests of the split.", format="int64"),
            "errors": plain("integer", "Server errors among them.", format="int64"),
            "refused": plain("integer", "Other requests: those answered with 4xx.", format="int64"),
            "left": plain(
                "integer", "Other requests: those whose caller disconnected before the response.", format="int64"
            ),
            "latency": {**plain("object", "Number of responses by latency bucket."), "additionalProperties": _COUNT},
        },
    )


def _passed() -> Schema:
    return record(
        "A completed step.",
        {
            "percent": plain("integer", "Percentage of the candidate.", format="int32"),
            "since": plain("string", "Time at which it was set."),
            "until": plain("string", "Time of its end."),
            "verdict": _verdict(),
        },
    )
