"""Our own event, `dev.knodel.training.completed.v1`: a training ended, and this is what it made. Pure."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from eventing.errors import BadEvent, shown
from eventing.objects.event import Event
from eventing.objects.ports import Change, EventSource, Mapped, ModelRef

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
    """The event's data; members of other names are passed over."""

    model: _Name
    storage_uri: _Uri
    namespace: _Namespace | None = None
    digest: _Digest | None = None
    version: _Word | None = None
    model_format: _Word | None = None
    metrics: dict[str, Any] | None = None


def read_training(value: Any, what: str) -> Training:
    """The Training that `value` is, `what` in messages. Raises BadEvent (400)."""
    try:
        found = msgspec.convert(value, Training)
    except msgspec.ValidationError as error:
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"{what}: {error}") from error
    if _CONTROL.search(f"{found.storage_uri}{found.version or ''}{found.model_format or ''}"):
        message = f"{what}: storageUri, version or modelFormat has control characters"
        raise BadEvent(HTTPStatus.BAD_REQUEST, message)
    return found


class TrainingMapper:
    """`Mapper` of events that are our own."""

    def map(self, source: EventSource, event: Event) -> Mapped:
        """The change that the event asks for; nothing for another type. Raises BadEvent (400)."""
        if event.type != TYPE:
            return Mapped(
                event.id, event.source, event.time, ignored=f"the type {shown(event.type)} means nothing here"
            )
        data = read_training(event.data, _DATA)
        return Mapped(
            event.id,
            event.source,
            event.time,
            model=ModelRef(data.namespace or source.namespace, data.model),
            change=Change(data.storage_uri, data.digest or "", data.version or "", data.model_format or ""),
            metrics=data.metrics or {},
        )
