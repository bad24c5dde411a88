"""ModelEvents: the record of a received event and of its result. Pure.

The webhook writes `spec` once. The controller writes `status`; without a status the phase is Accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import msgspec

from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import (
    MODEL_EVENT,
    Key,
    Object,
    annotations_of,
    key_of,
    parse_timestamp,
    version_number,
    version_of,
)
from eventing.objects.apis import (
    ANNOTATION_REPLAY,
    FINAL_PHASES,
    LABEL_EVENT_SOURCE,
    LABEL_IGNORED,
    LABEL_MODEL,
    ModelChange,
    ModelRef,
    ObjectPart,
    Phase,
)

NAME_DIGITS: Final = 40
"""Hex digits of a ModelEvent's name: 160 bits prevent collisions, both by chance and by attack."""
LARGEST_DATA: Final = 16 * 1024
"""Maximum bytes of an event's data that are stored: 20 000 events are in memory when embedded."""
NOTHING: Final[Mapping[str, Any]] = {}


class EventSpec(ObjectPart, frozen=True):
    """`spec`: the mapped event. `received_at` has microseconds, so it orders arrivals."""

    event_source: str
    source: str
    id: str
    type: str
    received_at: datetime
    time: datetime | None = None
    sequence: str = ""
    sequencetype: str = ""
    subject: str = ""
    traceparent: str = ""
    correlationid: str = ""
    model: ModelRef | None = None
    change: ModelChange | None = None
    metrics: dict[str, Any] | None = None
    data: Any = None
    ignored: str = ""


class EventStatus(ObjectPart, frozen=True):
    """`status`. `at`: time of the phase; `retry_at`: time of the next attempt of an Accepted event; `arrival`: the
    object's first resourceVersion, before it had a status."""

    phase: Phase = "Accepted"
    reason: str = ""
    message: str = ""
    attempts: int = 0
    retry_at: datetime | None = None
    at: datetime | None = None
    revision: str = ""
    generation: int = 0
    arrival: int = 0

    def to_json(self) -> Object:
        """Return the status as it is stored: without empty fields, except the phase."""
        return {"phase": self.phase, **msgspec.to_builtins(self)}


@dataclass(frozen=True, slots=True)
class ModelEvent:
    """A checked ModelEvent; `object` is the Kubernetes object."""

    object: Object
    spec: EventSpec
    status: EventStatus

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return key_of(self.object)

    @property
    def version(self) -> str:
        """`metadata.resourceVersion`."""
        return version_of(self.object)

    @property
    def arrival(self) -> int:
        """Its place in the order in which the store created objects; 0 if unknown."""
        return arrival_of(self.object)


def event_name(source: str, id: str) -> str:
    """Return the name of the ModelEvent for this event; duplicates have the same name."""
    return "e-" + sha256(f"{source}\0{id}".encode()).hexdigest()[:NAME_DIGITS]


def make_model_event(namespace: str, spec: EventSpec) -> Object:
    """Return the ModelEvent to be created."""
    labels = {LABEL_EVENT_SOURCE: spec.event_source}
    if spec.model is not None:
        labels[LABEL_MODEL] = spec.model.name
    if spec.ignored:
        labels[LABEL_IGNORED] = "true"
    metadata = {"name": event_name(spec.source, spec.id), "namespace": namespace, "labels": labels}
    return {
        "apiVersion": MODEL_EVENT.api_version,
        "kind": MODEL_EVENT.kind,
        "metadata": metadata,
        "spec": msgspec.to_builtins(spec),
    }


def read_model_event(obj: Object) -> ModelEvent:
    """Return the checked ModelEvent. A malformed status counts as absent. Raises Invalid for a malformed spec."""
    try:
        spec = msgspec.convert(obj.get("spec"), EventSpec)
    except msgspec.ValidationError as exc:
        raise Invalid(f"ModelEvent {str(key_of(obj))!r}", [FieldError("spec", str(exc))]) from exc
    try:
        status = msgspec.convert(obj.get("status") or {}, EventStatus)
    except msgspec.ValidationError:
        status = EventStatus()
    return ModelEvent(obj, spec, status)


def arrival_of(obj: Object) -> int:
    """Return the object's first resourceVersion as a number, 0 if unknown.

    Each webhook sets `receivedAt` by its own clock; only the store knows which of two events came first.
    """
    status = obj.get("status") or {}
    if status:
        arrival = status.get("arrival")
        return arrival if isinstance(arrival, int) else 0
    return version_number(str((obj.get("metadata") or {}).get("resourceVersion") or ""))


def is_pending(obj: Object) -> bool:
    """Return whether the event is still to be processed: it is Accepted, or a replay is requested."""
    return (obj.get("status") or {}).get("phase") not in FINAL_PHASES or wants_replay(obj)


def wants_replay(obj: Object) -> bool:
    """Return whether a replay was requested after the event's phase was reached."""
    since = replay_of(obj)
    if since is None:
        return False
    reached = _time(str((obj.get("status") or {}).get("at") or ""))
    return reached is None or since > reached


def replay_of(obj: Object) -> datetime | None:
    """Return when a replay was last requested, None if never."""
    wanted = annotations_of(obj).get(ANNOTATION_REPLAY)
    return _time(wanted) if wanted else None


def model_of(obj: Object) -> Key | None:
    """Return the key of the Model that a ModelEvent changes, None if it changes none. Accepts malformed objects."""
    spec = obj.get("spec")
    if not isinstance(spec, dict) or not spec.get("change") or spec.get("ignored"):
        return None
    model = spec.get("model")
    if not isinstance(model, dict):
        return None
    return Key(str(model.get("namespace") or ""), str(model.get("name") or ""))


def validate_model_event(old: Object | None, new: Object) -> Sequence[FieldError]:
    """Return all faults of `new`: a malformed or changed spec, a replay annotation that is not a time."""
    if old is not None and old.get("spec") != new.get("spec"):
        return [FieldError("spec", "it is immutable: send another event")]
    faults = []
    try:
        msgspec.convert(new.get("spec"), EventSpec)
    except msgspec.ValidationError as error:
        faults.append(FieldError("spec", str(error)))
    replay = annotations_of(new).get(ANNOTATION_REPLAY)
    if replay is not None and _time(replay) is None:
        path = f"metadata.annotations[{ANNOTATION_REPLAY}]"
        faults.append(FieldError(path, f"{replay[:40]!r} is not an RFC 3339 time"))
    return faults


def _time(text: str) -> datetime | None:
    try:
        at = parse_timestamp(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
