"""The schema of a Model's `status`, as `serving.reconciler.status` writes it. Pure.

Types and no bounds: a status that is refused would leave people with an old one. Decisions and starts pass through as
the autoscaler noted them in annotations, which others may write to as well, so nothing of them is required.
"""

from __future__ import annotations

from serving.crds.rollout_status import make_rollout_status
from serving.crds.schema import PRESERVE, Schema, listing, plain, record


def make_status_schema() -> Schema:
    """The schema of `status`."""
    return record(
        "What is there.",
        {
            "observedGeneration": plain("integer", "Generation of the spec that this speaks of.", format="int64"),
            "conditions": listing("Ready, and what it is made of.", make_condition()),
            "url": plain("string", "Where the model answers."),
            "address": record(
                "Where senders inside the cluster find it (Knative's Addressable).",
                {"url": plain("string", "The address.")},
            ),
            "addresses": listing(
                "All addresses, that inside the cluster first.",
                record(
                    "One address.",
                    {"name": plain("string", "public or cluster-local."), "url": plain("string", "The address.")},
                ),
            ),
            "latestCreatedRevision": plain("string", "The newest revision."),
            "latestReadyRevision": plain("string", "The newest revision that is ready."),
            "modelFormat": plain("string", "Format of that revision's files, as its server found it."),
            "traffic": listing("Who gets what, as last seen at the gateway.", _traffic()),
            "replicas": record(
                "Replicas of all revisions.",
                {
                    "desired": plain("integer", "Wanted.", format="int32"),
                    "ready": plain("integer", "Ready.", format="int32"),
                    "starting": plain("integer", "Wanted and not ready yet.", format="int32"),
                },
            ),
            "decisions": listing("The newest scaling decisions, oldest first.", _decision()),
            "starts": listing("The newest starts of replicas, oldest first.", _start()),
            "rollout": make_rollout_status(),
            "history": listing("Versions that came and went, oldest first.", _history()),
            "outbox": listing("Events of ours that are still to be kept, oldest first.", _outbox()),
            "lastSequence": plain("string", "The place of the newest event that was in the outbox."),
        },
    )


def make_condition() -> Schema:
    """One of `status.conditions`."""
    return record(
        "One condition.",
        {
            "type": plain("string", "Its name."),
            "status": plain("string", "True, False or Unknown.", enum=["True", "False", "Unknown"]),
            "reason": plain("string", "Why, as one word."),
            "message": plain("string", "Why, for people."),
            "lastTransitionTime": plain("string", "When the status changed.", format="date-time"),
        },
        required=["type", "status"],
    )


def _traffic() -> Schema:
    return record(
        "One part of the traffic.",
        {
            "revision": plain("string", "The revision."),
            "version": plain("string", "What people call it."),
            "percent": plain("integer", "Its share.", format="int32"),
            "tag": plain("string", "Its tag."),
            "url": plain("string", "The tag's address."),
        },
    )


def _decision() -> Schema:
    fields = {"revision": plain("string", "The revision that was scaled.")}
    return {**record("One scaling decision with its reasons.", fields), PRESERVE: True}


def _start() -> Schema:
    fields = {"revision": plain("string", "The revision of the replica.")}
    return {**record("One start of a replica with its steps.", fields), PRESERVE: True}


def _outbox() -> Schema:
    fields = {
        "id": plain("string", "Its id."),
        "type": plain("string", "Its type."),
        "time": plain("string", "When it happened."),
        "sequence": plain("string", "Its place among events of this Model."),
    }
    return {**record("One event that tells of a version.", fields), PRESERVE: True}


def _history() -> Schema:
    return record(
        "One version that came, or an old one that got all the traffic again.",
        {
            "revision": plain("string", "Its revision, which stands for all variants."),
            "version": plain("string", "What people call it."),
            "digest": plain("string", "SHA-256 of its model."),
            "storageUri": plain("string", "Where its model lay."),
            "cause": record(
                "Why it came.",
                {
                    "by": plain("string", "user, event or rollback."),
                    "id": plain("string", "Id of the event, or of the rollback."),
                    "source": plain("string", "Source of the event."),
                },
            ),
            "outcome": plain("string", "serving, promoted, superseded, rolledback or failed; absent while it starts."),
            "at": plain("string", "When it came."),
            "promotedAt": plain("string", "When it got all the traffic."),
        },
        required=["revision"],
    )
