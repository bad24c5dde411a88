"""`knodel describe`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from clusters.base.objects import (
    EVENT,
    MODEL,
    REVISION,
    Object,
    condition_of,
    name_of,
    parse_timestamp,
    timestamp,
    uid_of,
)
from serving.cli.addresses import address_lines, aligned
from serving.cli.base.output import Output
from serving.cli.context import Session, verb
from serving.cli.names import model_name
from serving.cli.texts import adapters_text, last_seen, rollout_lines, schedule_lines
from serving.control_api.table import age_of
from serving.types.annotations import LABEL_MODEL

EVENTS = 20  # the newest events that are printed


@verb("describe", examples=[("Show a model with its latest events", "knodel describe iris")])
@model_name()
def command(session: Session, name: str) -> None:
    """Show the model NAME with its conditions, traffic, versions and events."""
    client = session.client()
    model = client.get(MODEL, name, session.namespace)
    if session.output.structured:
        session.output.value(model)
        return
    revisions = client.list(REVISION, session.namespace, f"{LABEL_MODEL}={name}")["items"]
    events = client.list(EVENT, session.namespace, fields=f"involvedObject.uid={uid_of(model)}")["items"]
    _show(session, model, revisions, sorted(events, key=last_seen)[-EVENTS:])


def _show(session: Session, model: Object, revisions: list[Object], events: list[Object]) -> None:
    output, spec, status = session.output, model["spec"], model.get("status") or {}
    replicas: dict[str, Any] = status.get("replicas") or {}
    facts = [
        ("Name", f"{name_of(model)} (namespace {model['metadata']['namespace']})"),
        *(address_lines(session, model) or [("URL", "")]),
        ("Storage", str(spec.get("storageUri") or (spec.get("ray") or {}).get("service") or "")),
        ("Format", str(status.get("modelFormat") or spec.get("modelFormat", ""))),
        *([("Adapters", adapters)] if (adapters := adapters_text(model)) else []),
        ("Replicas", ", ".join(f"{count} {name}" for name, count in replicas.items())),
    ]
    for line in aligned(facts, 12):
        output.text(line)
    columns = ("type", "status", "reason", "message")
    conditions = [[one.get(column) or "" for column in columns] for one in status.get("conditions") or ()]
    _section(output, "Conditions", list(columns), conditions)
    traffic = [
        [entry.get("revision"), f"{entry.get('percent', 0)} %", entry.get("tag", ""), entry.get("version", "")]
        for entry in status.get("traffic") or ()
    ]
    _section(output, "Traffic", ["revision", "percent", "tag", "version"], traffic)
    now = datetime.now(UTC)
    for lines in (rollout_lines(model), schedule_lines(model, now)):
        for line in ["", *lines] if lines else ():
            output.text(line)
    versions = [
        [name_of(one), (condition_of(one, "Ready") or {}).get("status", "Unknown"), age_of(one, now)]
        for one in sorted(revisions, key=name_of)
    ]
    _section(output, "Versions", ["revision", "ready", "age"], versions)
    happened = [
        [_age(event, now), event.get("type"), event.get("reason"), event.get("count", 1), event.get("message")]
        for event in events
    ]
    _section(output, "Events", ["age", "type", "reason", "times", "message"], happened)


def _age(event: Object, now: datetime) -> str:
    stamp = last_seen(event) or timestamp(now)
    return age_of({"metadata": {"creationTimestamp": timestamp(parse_timestamp(stamp))}}, now)


def _section(output: Output, title: str, heads: list[str], rows: Sequence[Sequence[object]]) -> None:
    output.text("")
    output.text(f"{title}:")
    if rows:
        indented = [[f"  {row[0]}", *row[1:]] for row in rows]
        output.table([f"  {heads[0]}", *heads[1:]], indented, wrapped="message")
    else:
        output.text("  none")
