"""ModelEvents that go out: the events of an outbox as they are kept, sent and, when nobody takes them, replayed. Pure.

One has the label `knodel.dev/direction: out`; its `spec.data` is the whole CloudEvent, `spec.model` the Model that it
is about. It changes nothing, so the controller of what came in leaves it alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import MODEL, Key, Object, labels_of, parse_timestamp
from eventing.objects.apis import LABEL_DIRECTION, LABEL_EVENT_SOURCE, ModelRef
from eventing.objects.model_event import ModelEvent, Spec, event_name, is_pending, make_model_event, read_model_event
from eventing.objects.outbox import Entry

OUT: Final = "out"
REQUIRED: Final = ("specversion", "id", "source", "type", "time", "correlationid")
"""Attributes that every event of ours has."""
PREFIX: Final = "o-"
"""Of their names: nobody outside can take one of them by sending an event of this source and id."""


def is_outgoing(obj: Object) -> bool:
    """Whether it is an event of ours on its way out."""
    return labels_of(obj).get(LABEL_DIRECTION) == OUT


def source_of(model: Key) -> str:
    """The `source` of a Model's events: its path in the Kubernetes API, as Knative has it of its objects."""
    return f"/apis/{MODEL.api_version}/namespaces/{model.namespace}/{MODEL.plural}/{model.name}"


def make_outgoing(model: Key, entry: Entry, cause: Spec | None, now: datetime) -> Object:
    """The ModelEvent of an entry of the Model's outbox; `cause` is the event that caused it, as far as it is known."""
    event = make_cloud_event(model, entry, cause)
    spec = Spec(
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


def make_cloud_event(model: Key, entry: Entry, cause: Spec | None) -> dict[str, Any]:
    """The event in CloudEvents' JSON format, with the extensions correlation, distributed tracing and sequence.

    What is caused by an event has its correlation, else that event's id; else it is about its version alone.
    """
    known = cause.correlationid if cause is not None else ""
    trace = cause.traceparent if cause is not None else ""
    parts = {
        "specversion": "1.0",
        "id": entry.id,
        "source": source_of(model),
        "type": entry.type,
        "subject": entry.subject,
        "time": entry.time,
        "datacontenttype": "application/json",
        "sequence": entry.sequence,
        "causationid": entry.causationid,
        "correlationid": known or entry.causationid or entry.subject,
        "traceparent": entry.traceparent or trace,
        "data": entry.data,
    }
    return {name: value for name, value in parts.items() if value}


def waiting_for(obj: Object) -> list[str]:
    """The Model whose events wait for this one: the informer's index of what is still to be sent."""
    model = (obj.get("spec") or {}).get("model")
    if not is_outgoing(obj) or not is_pending(obj) or not isinstance(model, dict):
        return []
    return [str(Key(str(model.get("namespace") or ""), str(model.get("name") or "")))]


def read_outgoing(obj: Object) -> ModelEvent:
    """The checked ModelEvent with the event in it. Raises Invalid, also for one that we did not make: who sends events
    may write labels on them, and has a say over their data."""
    event = read_model_event(obj)
    if fault := _fault(event):
        raise Invalid(f"ModelEvent {str(event.key)!r}", [fault])
    return event


def _fault(event: ModelEvent) -> FieldError | None:
    spec, data = event.spec, event.spec.data
    if not isinstance(data, dict) or any(not isinstance(data.get(name), str) for name in REQUIRED):
        return FieldError("spec.data", "it is no CloudEvent of ours")
    if event.key.name != outgoing_name(spec.source, spec.id) or spec.event_source:
        return FieldError("metadata.name", "it came in and does not go out")
    model = spec.model
    if model is None or model.namespace != event.key.namespace:
        return FieldError("spec.model", "it is not of its own namespace")
    if {spec.source, data["source"]} != {source_of(Key(model.namespace, model.name))} or data["id"] != spec.id:
        return FieldError("spec.data", "it speaks of another Model")
    return None


def outgoing_name(source: str, id: str) -> str:
    """The name of the ModelEvent of an event of ours."""
    return PREFIX + event_name(source, id).removeprefix("e-")


def in_order(events: Iterable[ModelEvent]) -> list[ModelEvent]:
    """As they happened."""
    return sorted(events, key=lambda event: (event.spec.sequence, event.spec.received_at, event.key))
