"""`knodel events sources`: list EventSources with their conditions."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from clusters.base.objects import EVENT_SOURCE, Object, condition_of, name_of, namespace_of
from serving.cli.context import Session, all_namespaces_option, verb
from serving.cli.listing import Listing, show_list, watch_option
from serving.control_api.table import age_of

HEADS: Final = ("namespace", "name", "age", "source", "models", "ready", "reason", "message")
UNKNOWN: Final = "Unknown"
"""Status of an EventSource that the controller has not reconciled yet."""


@verb(
    "sources",
    examples=[
        ("List event sources and whether they can be used", "knodel events sources"),
        ("Show changes as they happen", "knodel events sources --watch"),
    ],
)
@all_namespaces_option
@watch_option
def sources_command(session: Session, all_namespaces: bool, watch: bool) -> None:
    """List event sources with the models that they may change."""
    listing = Listing(EVENT_SOURCE, HEADS, _row, optional=("age", "reason"), wrapped="message", generic=True)
    show_list(session, listing, None if all_namespaces else session.namespace, watch=watch)


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
