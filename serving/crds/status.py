"""The schema of a Model's `status`, as `serving.reconciler.status` writes it. Pure.

It has types and no bounds, because a refused status would leave an old one in place. Decisions and starts are copied
from annotations of the autoscaler. Others may write to annotations too, so none of their fields is required.
"""

from __future__ import annotations

from serving.crds.rollout_status import make_rollout_status
from serving.crds.schema import PRESERVE, Schema, listing, plain, record


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
            "rollout": make_rollout_status(),
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
