"""Outgoing ModelEvents: the stored form of outbox entries while they are sent, retried and replayed. Pure.

An outgoing ModelEvent has the label `knodel.dev/direction: out`. Its `spec.data` is the whole CloudEvent, `spec.model`
the Model that it reports on. It changes no Model, so the controller of received events ignores it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import MODEL, Key, Object, labels_of, parse_timestamp
from clusters.net.cloudevents import to_members
from eventing.objects.apis import LABEL_DIRECTION, LABEL_EVENT_SOURCE, ModelRef
from eventing.objects.model_event import (
    EventSpec,
    ModelEvent,
    event_name,
    is_pending,
    make_model_event,
    read_model_event,
)
from eventing.objects.outbox import OutboxEntry

OUT: Final = "out"
REQUIRED: Final = ("specversion", "id", "source", "type", "time", "correlationid")
"""Attributes that every outgoing event has."""
PREFIX: Final = "o-"
"""Prefix of their names, so that a received event with the same source and id cannot take the name."""


def is_outgoing(obj: Object) -> bool:
    """Return whether the ModelEvent is outgoing."""
    return labels_of(obj).get(LABEL_DIRECTION) == OUT


def source_of(model: Key) -> str:
    """Return the `source` of a Model's events: its path in the Kubernetes API, as in Knative's own events."""
    return f"/apis/{MODEL.api_version}/namespaces/{model.namespace}/{MODEL.plural}/{model.name}"


def make_outgoing(model: Key, entry: OutboxEntry, cause: EventSpec | None, now: datetime) -> Object:
    """Return the ModelEvent for an entry of the Model's outbox; `cause`: the event that caused it, if known."""
    event = make_cloud_event(model, entry, cause)
    spec = EventSpec(
        event_source="",
        source=event["source"],
        id=entry.id,
        type=entry.type,
        received_at=now,
        time=parse_timestamp(entry.time),
        sequence=entry.sequence,
        subject=entry.subject,
        traceparent=event.get("traceparent", ""),
        model=ModelRef(model.namespace, model.name),
        data=event,
    )
    made = make_model_event(model.namespace, spec)
    labels = {name: text for name, text in labels_of(made).items() if name != LABEL_EVENT_SOURCE}
    name = outgoing_name(spec.source, spec.id)
    metadata = {**made["metadata"], "name": name, "labels": {**labels, LABEL_DIRECTION: OUT}}
    return {**made, "metadata": metadata}


def make_cloud_event(model: Key, entry: OutboxEntry, cause: EventSpec | None) -> dict[str, Any]:
    """Return the event in CloudEvents' JSON format, with the extensions correlation, distributed tracing and sequence.

    The correlation id is that of the causing event, else that event's id, else the revision's name.
    """
    known = cause.correlationid if cause is not None else ""
    trace = cause.traceparent if cause is not None else ""
    attributes = {
        "id": entry.id,
        "source": source_of(model),
        "type": entry.type,
        "subject": entry.subject,
        "time": entry.time,
        "sequence": entry.sequence,
        "causationid": entry.causationid,
        "correlationid": known or entry.causationid or entry.subject,
        "traceparent": entry.traceparent or trace,
    }
    return {name: value for name, value in to_members(attributes, entry.data).items() if value}


def waiting_for(obj: Object) -> list[str]:
    """Return the key of the Model of a pending outgoing event as an index for the informer; else an empty list."""
    model = (obj.get("spec") or {}).get("model")
    if not is_outgoing(obj) or not is_pending(obj) or not isinstance(model, dict):
        return []
    return [str(Key(str(model.get("namespace") or ""), str(model.get("name") or "")))]


def read_outgoing(obj: Object) -> ModelEvent:
    """Return the checked ModelEvent with its event.

    Raises Invalid, also for one that the emitter did not create: tenants may set labels on received ModelEvents, and
    they control their data.
    """
    event = read_model_event(obj)
    if fault := _fault(event):
        raise Invalid(f"ModelEvent {str(event.key)!r}", [fault])
    return event


def _fault(event: ModelEvent) -> FieldError | None:
    spec, data = event.spec, event.spec.data
    if not isinstance(data, dict) or any(not isinstance(data.get(name), str) for name in REQUIRED):
        return FieldError("spec.data", "it is not an outgoing CloudEvent")
    if event.key.name != outgoing_name(spec.source, spec.id) or spec.event_source:
        return FieldError("metadata.name", "it is the name of a received event, not of an outgoing one")
    model = spec.model
    if model is None or model.namespace != event.key.namespace:
        return FieldError("spec.model", "it is not in the namespace of the ModelEvent")
    if {spec.source, data["source"]} != {source_of(Key(model.namespace, model.name))} or data["id"] != spec.id:
        return FieldError("spec.data", "its source and id are not those of the ModelEvent")
    return None


def outgoing_name(source: str, id: str) -> str:
    """Return the name of the ModelEvent for an outgoing event."""
    return PREFIX + event_name(source, id).removeprefix("e-")


def in_order(events: Iterable[ModelEvent]) -> list[ModelEvent]:
    """Sort the events of a Model chronologically."""
    return sorted(events, key=lambda event: (event.spec.sequence, event.spec.received_at, event.key))
