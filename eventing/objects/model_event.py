"""A ModelEvent: what came, and what became of it. Pure.

`spec` is written once, by the webhook. `status` is the controller's; one that is absent means Accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import msgspec

from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import MODEL_EVENT, Key, Object, annotations_of, key_of, parse_timestamp, version_of
from eventing.objects.apis import (
    ANNOTATION_REPLAY,
    FINAL_PHASES,
    LABEL_EVENT_SOURCE,
    LABEL_IGNORED,
    LABEL_MODEL,
    Change,
    ModelRef,
    Part,
    Phase,
)

NAME_DIGITS: Final = 40
"""Hex digits of a ModelEvent's name: 160 bits, no two events share them by chance or by work."""
LARGEST_DATA: Final = 16 * 1024
"""Bytes of an event's data that are kept as they were sent: 20 000 events are in memory when embedded."""
NOTHING: Final[Mapping[str, Any]] = {}


class Spec(Part, frozen=True):
    """`spec`: the event as it is mapped. `received_at` has microseconds and tells the order of arrival."""

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
    change: Change | None = None
    metrics: dict[str, Any] | None = None
    data: Any = None
    ignored: str = ""


class Status(Part, frozen=True):
    """`status`: `at` is when the phase was reached, `retry_at` when an Accepted one is tried again, `arrival` the
    version that the object was stored with, before it had a status."""

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
        """As it is stored; what is empty is left out but for the phase."""
        return {"phase": self.phase, **msgspec.to_builtins(self)}


@dataclass(frozen=True, slots=True)
class ModelEvent:
    """A checked ModelEvent; `object` is the one it was read from."""

    object: Object
    spec: Spec
    status: Status

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
        """Its place among all that its store took in; 0 where that is not known."""
        return arrival_of(self.object)


def event_name(source: str, id: str) -> str:
    """The name of the ModelEvent of this event: the same for every copy."""
    return "e-" + sha256(f"{source}\0{id}".encode()).hexdigest()[:NAME_DIGITS]


def make_model_event(namespace: str, spec: Spec) -> Object:
    """The object to be created."""
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
    """The checked ModelEvent. A status that cannot be read counts as none. Raises Invalid for a spec that is none."""
    try:
        spec = msgspec.convert(obj.get("spec"), Spec)
    except msgspec.ValidationError as exc:
        raise Invalid(f"ModelEvent {str(key_of(obj))!r}", [FieldError("spec", str(exc))]) from exc
    return ModelEvent(obj, spec, _read_status(obj))


def arrival_of(obj: Object) -> int:
    """The version that the object was stored with, as Kubernetes 1.35 lets versions be compared; 0: not known.

    Each webhook dates arrivals by its own clock; the store alone knows which of two was first.
    """
    status = obj.get("status") or {}
    if status:
        arrival = status.get("arrival")
        return arrival if isinstance(arrival, int) else 0
    version = str((obj.get("metadata") or {}).get("resourceVersion") or "")
    return int(version) if version.isascii() and version.isdigit() else 0


def is_pending(obj: Object) -> bool:
    """Whether something is still to be done: it is Accepted, or people want it tried anew."""
    return (obj.get("status") or {}).get("phase") not in FINAL_PHASES or wants_replay(obj)


def wants_replay(obj: Object) -> bool:
    """Whether people want it tried anew since its phase was reached."""
    since = replay_of(obj)
    if since is None:
        return False
    reached = _time(str((obj.get("status") or {}).get("at") or ""))
    return reached is None or since > reached


def replay_of(obj: Object) -> datetime | None:
    """When people wanted it tried anew, if ever."""
    wanted = annotations_of(obj).get(ANNOTATION_REPLAY)
    return _time(wanted) if wanted else None


def model_of(obj: Object) -> Key | None:
    """The Model that an event changes; None for one that changes nothing, or is none. Takes whatever was stored."""
    spec = obj.get("spec")
    if not isinstance(spec, dict) or not spec.get("change") or spec.get("ignored"):
        return None
    model = spec.get("model")
    if not isinstance(model, dict):
        return None
    return Key(str(model.get("namespace") or ""), str(model.get("name") or ""))


def validate_model_event(old: Object | None, new: Object) -> Sequence[FieldError]:
    """Every fault of `new`: a spec that is none, one that changes, a replay that is no time."""
    if old is not None and old.get("spec") != new.get("spec"):
        return [FieldError("spec", "it cannot change: send another event")]
    faults = []
    try:
        msgspec.convert(new.get("spec"), Spec)
    except msgspec.ValidationError as error:
        faults.append(FieldError("spec", str(error)))
    replay = annotations_of(new).get(ANNOTATION_REPLAY)
    if replay is not None and _time(replay) is None:
        faults.append(FieldError(f"metadata.annotations[{ANNOTATION_REPLAY}]", f"{replay[:40]!r} is no RFC 3339 time"))
    return faults


def _read_status(obj: Object) -> Status:
    try:
        return msgspec.convert(obj.get("status") or {}, Status)
    except msgspec.ValidationError:
        return Status()


def _time(text: str) -> datetime | None:
    try:
        at = parse_timestamp(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
