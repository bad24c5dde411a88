"""`knodel events sources`: list EventSources with their conditions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from clusters.base.objects import EVENT_SOURCE, Object, condition_of, name_of, namespace_of
from serving.cli.context import Session, all_namespaces_option, verb
from serving.cli.events.list import list_of
from serving.control_api.table import age_of

HEADS: Final = ("namespace", "name", "age", "source", "models", "ready", "reason", "message")
UNKNOWN: Final = "Unknown"
"""Status of an EventSource that the controller has not reconciled yet."""


@verb("sources", examples=[("List event sources and whether they can be used", "knodel events sources")])
@all_namespaces_option
def sources_command(session: Session, all_namespaces: bool) -> None:
    """List event sources with the models that they may change."""
    found = session.client().list(EVENT_SOURCE, None if all_namespaces else session.namespace)["items"]
    if session.output.structured:
        session.output.value(list_of(found))
        return
    now = datetime.now(UTC)
    session.output.table(HEADS, [_row(one, now) for one in found], optional=("age", "reason"), wrapped="message")


def _row(event_source: Object, now: datetime) -> list[object]:
    spec, ready = event_source.get("spec") or {}, condition_of(event_source, "Ready") or {}
    return [
        namespace_of(event_source),
        name_of(event_source),
        age_of(event_source, now),
        spec.get("source", ""),
        ",".join(spec.get("models") or ()),
        ready.get("status", UNKNOWN),
        ready.get("reason", ""),
        ready.get("message", ""),
    ]
