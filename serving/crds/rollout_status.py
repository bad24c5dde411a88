"""The schema of `status.rollout`, as `serving.reconciler.rollout.state` writes it. Pure; types and no bounds."""

from __future__ import annotations

from serving.crds.schema import Schema, listing, plain, record

_COUNT = plain("integer", format="int64")


def make_rollout_status() -> Schema:
    """The schema of `rollout`: atomic, since a granular map that an apply empties becomes null, and is refused."""
    schema = record(
        "The last rollout of a version.",
        {
            "phase": plain("string", "Progressing, Paused, Promoted, RolledBack or Failed."),
            "candidate": plain("string", "The revision that comes."),
            "stable": plain("string", "The revision that had all the traffic before."),
            "step": plain("integer", "Index of the step, from 0.", format="int32"),
            "percent": plain("integer", "What the candidate is to get now.", format="int32"),
            "startedAt": plain("string", "When the candidate was made."),
            "since": plain("string", "When that was asked for."),
            "seenAt": plain("string", "When the step was seen in force at the gateway."),
            "pausedAt": plain("string", "Since when it is paused."),
            "downSince": plain("string", "Since when a candidate that has traffic is not ready."),
            "endedAt": plain("string", "When it ended."),
            "verdict": _verdict(),
            "reasons": listing("Why it is where it is.", plain("string")),
            "counts": record(
                "What both versions answered since the percent changed.",
                {
                    "stable": _counts("The stable version."),
                    "candidate": _counts("The candidate."),
                    "baseline": _counts("The stable version before, for a step that leaves it nothing."),
                },
            ),
            "passed": listing("Steps that are over.", _passed()),
            "stood": {
                **plain("object", "Replicas of the stable version when the step began, by Configuration."),
                "additionalProperties": _COUNT,
            },
            "steady": plain("boolean", "Whether averages of the load know nothing of the traffic before."),
        },
    )
    return schema | {"x-kubernetes-map-type": "atomic"}


def _verdict() -> Schema:
    return record(
        "The judge's last look.",
        {
            "decision": plain("string", "wait, hold, pass or fail."),
            "at": plain("string", "When."),
            "reasons": listing("Why.", plain("string")),
            "numbers": {
                **plain("object", "Rates, bounds and requests that it came from."),
                "additionalProperties": plain("number", format="double"),
            },
        },
    )


def _counts(about: str) -> Schema:
    return record(
        about,
        {
            "requests": plain("integer", "Answers to requests of the split.", format="int64"),
            "errors": plain("integer", "Errors of the server's own among them.", format="int64"),
            "refused": plain("integer", "Requests besides, answered with the caller's error (4xx).", format="int64"),
            "left": plain("integer", "Requests besides, whose caller left before the answer.", format="int64"),
            "latency": {**plain("object", "Times by latency bucket."), "additionalProperties": _COUNT},
        },
    )


def _passed() -> Schema:
    return record(
        "A step that is over.",
        {
            "percent": plain("integer", "Of the candidate.", format="int32"),
            "since": plain("string", "When it was asked for."),
            "until": plain("string", "When it was over."),
            "verdict": _verdict(),
        },
    )
