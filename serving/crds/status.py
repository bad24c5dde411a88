"""The schemas of what our controllers write: every `status`, and the spec of a ModelEvent. Pure.

They have types and no bounds, because a refused status would leave an old one in place. Decisions and starts are copied
from annotations of the autoscaler. Others may write to annotations too, so none of their fields is required.
"""

from __future__ import annotations

from typing import Final, get_args

from eventing.objects.apis import Phase
from serving.types.schema import PRESERVE, RULES, Schema, listing, opaque, plain, record, rule

_COUNT: Final = plain("integer", format="int64")


def make_status_schema() -> Schema:
    """Return the schema of `status`."""
    return record(
        "Observed state of the Model.",
        {
            "observedGeneration": plain("integer", "Generation of the spec that the status describes.", format="int64"),
            "conditions": listing("Conditions: Ready and its parts.", make_condition()),
            "url": plain("string", "URL of the model."),
            "address": record(
                "Address for senders inside the cluster (Knative's Addressable).",
                {"url": plain("string", "URL.")},
            ),
            "addresses": listing(
                "All addresses, the one inside the cluster first.",
                record(
                    "An address.",
                    {"name": plain("string", "Name: public or cluster-local."), "url": plain("string", "URL.")},
                ),
            ),
            "latestCreatedRevision": plain("string", "The newest revision."),
            "latestReadyRevision": plain("string", "The newest ready revision."),
            "modelFormat": plain("string", "Format that the server of that revision found in its files."),
            "traffic": listing("Traffic split as last seen at the gateway.", _traffic()),
            "replicas": record(
                "Number of replicas of all revisions.",
                {
                    "desired": plain("integer", "Desired replicas.", format="int32"),
                    "ready": plain("integer", "Ready replicas.", format="int32"),
                    "starting": plain("integer", "Desired replicas that are not ready yet.", format="int32"),
                },
            ),
            "decisions": listing("The newest scaling decisions, oldest first.", _decision()),
            "starts": listing("The newest starts of replicas, oldest first.", _start()),
            "rollout": _rollout(),
            "history": listing("Versions, oldest first.", _history()),
            "outbox": listing("Outcome events that are not stored yet, oldest first.", _outbox()),
            "lastSequence": plain("string", "Sequence of the newest event that was in the outbox."),
        },
    )


def make_condition() -> Schema:
    """Return the schema of one item of `status.conditions`."""
    return record(
        "A condition.",
        {
            "type": plain("string", "Type of the condition."),
            "status": plain("string", "True, False or Unknown.", enum=["True", "False", "Unknown"]),
            "reason": plain("string", "Reason as one CamelCase word."),
            "message": plain("string", "Message that explains the reason."),
            "lastTransitionTime": plain("string", "Time of the last change of the status.", format="date-time"),
        },
        required=["type", "status"],
    )


def _traffic() -> Schema:
    return record(
        "A traffic target.",
        {
            "revision": plain("string", "Name of the revision."),
            "version": plain("string", "Version label."),
            "percent": plain("integer", "Percentage of traffic.", format="int32"),
            "tag": plain("string", "Tag."),
            "url": plain("string", "URL of the tag."),
        },
    )


def _decision() -> Schema:
    fields = {"revision": plain("string", "The revision that was scaled.")}
    return {**record("A scaling decision with its reasons.", fields), PRESERVE: True}


def _start() -> Schema:
    fields = {"revision": plain("string", "The revision of the replica.")}
    return {**record("A start of a replica with its steps.", fields), PRESERVE: True}


def _outbox() -> Schema:
    fields = {
        "id": plain("string", "Id of the event."),
        "type": plain("string", "Type of the event."),
        "time": plain("string", "Time of the event."),
        "sequence": plain("string", "Sequence of the event among those of this Model."),
    }
    return {**record("An event about a version.", fields), PRESERVE: True}


def _history() -> Schema:
    return record(
        "A new version, or an old one that got all traffic again.",
        {
            "revision": plain("string", "Its revision; with variants, the first variant's."),
            "version": plain("string", "Version label."),
            "digest": plain("string", "SHA-256 of its model."),
            "storageUri": plain("string", "Address of its model."),
            "cause": record(
                "Cause of the version.",
                {
                    "by": plain("string", "user, event or rollback."),
                    "id": plain("string", "Id of the event, or of the rollback."),
                    "source": plain("string", "Source of the event."),
                },
            ),
            "outcome": plain("string", "serving, promoted, superseded, rolledback or failed; absent while it starts."),
            "at": plain("string", "Time of its creation."),
            "promotedAt": plain("string", "Time at which it got all traffic."),
        },
        required=["revision"],
    )


def _rollout() -> Schema:
    """Return the schema of `rollout`, as `serving.reconciler.rollout.state` writes it.

    It is atomic: an apply would turn an emptied granular map into null.
    """
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
            "interTokenLatency": {
                **plain("object", "Number of streamed responses of a language model by mean time between tokens."),
                "additionalProperties": _COUNT,
            },
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


def make_pool_status() -> Schema:
    """Return the schema of a WarmPool's `status`."""
    return record(
        "Observed state of the WarmPool.",
        {
            "observedGeneration": plain("integer", "Generation of the spec that the status describes.", format="int64"),
            "conditions": listing("Conditions: Ready and its parts.", make_condition()),
            "size": plain("integer", "Desired number of members.", format="int32"),
            "ready": plain("integer", "Members that can be claimed.", format="int32"),
            "starting": plain("integer", "Members that are not ready yet.", format="int32"),
            "claimed": plain("integer", "Claims in progress.", format="int32"),
            "reasons": listing("Reasons for the desired number.", plain("string")),
            "seed": record(
                "The Configuration whose Pod template members are created from.",
                {
                    "ready": plain("boolean", "Whether Knative has created its Deployment."),
                    "message": plain("string", "Reason why it has not, and the remedy."),
                },
            ),
        },
    )


def make_event_source_status() -> Schema:
    """Return the schema of an EventSource's `status`."""
    return record(
        "Observed state of the EventSource.",
        {
            "observedGeneration": plain("integer", "Generation of the spec that the status describes.", format="int64"),
            "conditions": listing("Condition Ready: whether events can be sent with it.", make_condition()),
            "pending": plain("integer", "Waiting events at the last count.", format="int32"),
            "countedAt": plain("string", "Time of the last count.", format="date-time"),
        },
    )


def make_event_spec() -> Schema:
    """Return the schema of a ModelEvent's `spec`, which is immutable. The webhook has checked what it writes."""
    model = {"namespace": plain("string", "Namespace of the Model."), "name": plain("string", "Name of the Model.")}
    change = {
        "storageUri": plain("string", "Address of the artifact."),
        "digest": plain("string", "SHA-256 of the artifact."),
        "version": plain("string", "Version label."),
        "modelFormat": plain("string", "Model format."),
    }
    spec = record(
        "The event. It is immutable.",
        {
            "eventSource": plain("string", "EventSource that admitted the event."),
            "source": plain("string", "`source` of the event, or of its mapping's result."),
            "id": plain("string", "`id` of the event, or of its mapping's result."),
            "type": plain("string", "`type` of the event."),
            "receivedAt": plain("string", "Time of arrival.", format="date-time"),
            "time": plain("string", "`time` of the event.", format="date-time"),
            "sequence": plain("string", "`sequence` of the event."),
            "sequencetype": plain("string", "`sequencetype`: Integer, or empty for text."),
            "subject": plain("string", "`subject` of the event."),
            "traceparent": plain("string", "`traceparent` of the event."),
            "correlationid": plain("string", "`correlationid` of the event."),
            "model": record("Model that the event changes.", model, required=["namespace", "name"]),
            "change": record("Change of the Model.", change, required=["storageUri"]),
            "metrics": opaque("Metrics of the training."),
            "data": {"description": "`data` as it was sent.", PRESERVE: True},
            "ignored": plain("string", "Reason why the event is ignored."),
        },
        required=["eventSource", "source", "id", "type", "receivedAt"],
    )
    never = rule("self == oldSelf", "is immutable: send another event")
    return {**spec, "x-kubernetes-map-type": "atomic", RULES: [never]}


def make_event_status() -> Schema:
    """Return the schema of a ModelEvent's `status`."""
    return record(
        "Outcome of the event. If absent, the phase is Accepted.",
        {
            "phase": plain("string", f"One of {', '.join(get_args(Phase))}."),
            "reason": plain("string", "Reason as one CamelCase word."),
            "message": plain("string", "Message that explains the reason."),
            "attempts": plain("integer", "Number of failed attempts.", format="int32"),
            "retryAt": plain("string", "Time of the next attempt.", format="date-time"),
            "at": plain("string", "Time of the last change of the phase.", format="date-time"),
            "generation": plain("integer", "Generation of the Model after the change.", format="int64"),
            "revision": plain("string", "Revision that it created."),
            "arrival": plain("integer", "Order of arrival in the cluster.", format="int64"),
        },
    )
