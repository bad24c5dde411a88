"""`knodel events trace`."""

from __future__ import annotations

import click

from clusters.base.errors import NotFound
from clusters.base.objects import MODEL, Object, name_of
from eventing.objects.outgoing import is_outgoing
from serving.cli.context import Session, verb
from serving.cli.events.list import list_of, source_option
from serving.cli.events.lookup import find_event, list_events
from serving.cli.names import events
from serving.client.client import Client
from serving.client.errors import UsageError
from serving.client.models.event_timeline import cause_of, timeline
from serving.client.models.model_events import spec_of


@verb("trace", examples=[("Show what an event caused", "knodel events trace train-42")])
@click.argument("id", shell_complete=events)
@source_option
def trace_command(session: Session, id: str, source: str) -> None:
    """Show the effects of the event ID. They are a revision, rollout steps with verdicts, and an outcome."""
    client = session.client()
    event = find_event(client, session.namespace, id, source)
    if is_outgoing(event):
        event = _cause_of(client, session.namespace, event)
    model, outgoing = _model_of(client, event), _caused_by(client, event)
    if session.output.structured:
        session.output.value(list_of([event, *([model] if model else []), *outgoing]))
        return
    rows = [[one.at, one.kind, one.detail] for one in timeline(event, model, outgoing)]
    session.output.table(("time", "event", "detail"), rows, wrapped="detail")


def _cause_of(client: Client, namespace: str, event: Object) -> Object:
    """Return the event that caused an outgoing one. Raises UsageError if no event did."""
    cause = cause_of(event)
    if cause.get("by") != "event":
        raise UsageError(f"no event caused {spec_of(event).get('id')}: `knodel events show {name_of(event)}` shows it")
    return find_event(client, namespace, str(cause.get("id")), str(cause.get("source", "")))


def _model_of(client: Client, event: Object) -> Object | None:
    model = spec_of(event).get("model")
    if not isinstance(model, dict):
        return None
    try:
        return client.get(MODEL, str(model.get("name")), str(model.get("namespace")))
    except NotFound:
        return None


def _caused_by(client: Client, event: Object) -> list[Object]:
    """Return the outgoing events with this event as their cause."""
    spec = spec_of(event)
    model, wanted = spec.get("model"), (spec.get("id"), spec.get("source"))
    if not isinstance(model, dict):
        return []
    found = list_events(client, str(model.get("namespace")), "out", str(model.get("name")))
    return [one for one in found if (cause_of(one).get("id"), cause_of(one).get("source")) == wanted]
