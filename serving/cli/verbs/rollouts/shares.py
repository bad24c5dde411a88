"""The common half of `traffic`, `promote` and `rollback`: change the split, wait until it is in force, show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clusters.base.objects import MODEL, REVISION, Object, generation_of
from serving.cli.change import change_model
from serving.cli.client.wait import parse_timeout, wait_until_ready, wait_until_routed
from serving.cli.context import Session
from serving.types.annotations import LABEL_MODEL

COLLECTED = "that version was collected: a new revision is made from its record, and goes through the rollout's steps"


def change_split(
    session: Session, name: str, timeout: str, patch_of: Callable[[Object, list[Object]], dict[str, Any]]
) -> None:
    """Send the patch made of (Model, its Revisions), wait until it is in force, show the split."""
    seconds = parse_timeout(timeout)
    client = session.client(seconds)
    client.get(MODEL, name, session.namespace)
    revisions = client.list(REVISION, session.namespace, f"{LABEL_MODEL}={name}")["items"]
    sent: dict[str, Any] = {}

    def patch(model: Object) -> dict[str, Any]:
        sent.update(patch_of(model, revisions))
        return sent

    changed = change_model(client, name, session.namespace, patch)
    makes_a_version = "storageUri" in sent.get("spec", {})  # a rollback to a version that was collected
    if makes_a_version and (changed.get("spec") or {}).get("rollout") is not None:
        session.output.note(f"{COLLECTED}: `knodel promote {name}` gives it all the traffic at once")
    wait = wait_until_ready if makes_a_version else wait_until_routed
    show_split(session, wait(client, name, session.namespace, seconds, generation_of(changed)))


def show_split(session: Session, model: Object) -> None:
    """The traffic of a Model."""
    if session.output.structured:
        session.output.value(model)
        return
    entries = (model.get("status") or {}).get("traffic") or []
    rows = [
        [entry.get("revision"), entry.get("percent") or 0, entry.get("tag", ""), entry.get("version", "")]
        for entry in entries
    ]
    session.output.table(["revision", "percent", "tag", "version"], rows)
