"""Maps Knodel's own event, `dev.knodel.training.completed.v1`, to a change of a Model; `EventMapper` maps all. Pure."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from clusters.base.redact import quoted
from clusters.net.cloudevents import BadEvent, Event
from eventing.objects.ports import EventSource, Mapped, ModelChange, ModelRef

TYPE: Final = "dev.knodel.training.completed.v1"
_DATA: Final = f"the data of {TYPE}"
_LABEL: Final = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_Name = Annotated[str, Meta(min_length=1, max_length=53, pattern=_LABEL)]
_Namespace = Annotated[str, Meta(min_length=1, max_length=63, pattern=_LABEL)]
_Uri = Annotated[str, Meta(min_length=1, max_length=2048)]
_Digest = Annotated[str, Meta(pattern=r"^(sha256:[0-9a-f]{64})?\Z")]
_Word = Annotated[str, Meta(max_length=253)]


class Training(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The event's data; unknown members are ignored."""

    model: _Name
    storage_uri: _Uri
    namespace: _Namespace | None = None
    digest: _Digest | None = None
    version: _Word | None = None
    model_format: _Word | None = None
    metrics: dict[str, Any] | None = None


def read_training(value: Any, what: str) -> Training:
    """Convert `value` to a Training; `what` names it in messages. Raises BadEvent (400)."""
    try:
        found = msgspec.convert(value, Training)
    except msgspec.ValidationError as error:
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"{what}: {error}") from error
    if _CONTROL.search(f"{found.storage_uri}{found.version or ''}{found.model_format or ''}"):
        message = f"{what}: storageUri, version or modelFormat has control characters"
        raise BadEvent(HTTPStatus.BAD_REQUEST, message)
    return found


class EventMapper:
    """`ports.Mapper`: maps Knodel's own event type directly, and all others with their EventSource's mapping."""

    def map(self, source: EventSource, event: Event) -> Mapped:
        """Return the meaning of `event`. Raises BadEvent (400, 413)."""
        if event.type != TYPE:
            if source.mapping is not None:
                return source.mapping.map(event, source.namespace)
            reason = f"no mapping rule matches event type {quoted(event.type)}"
            return Mapped(event.id, event.source, event.time, ignored=reason)
        data = read_training(event.data, _DATA)
        return Mapped(
            event.id,
            event.source,
            event.time,
            model=ModelRef(data.namespace or source.namespace, data.model),
            change=ModelChange(data.storage_uri, data.digest or "", data.version or "", data.model_format or ""),
            metrics=data.metrics or {},
        )
