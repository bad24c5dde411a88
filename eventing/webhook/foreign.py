"""What senders that do not speak CloudEvents send (MLflow): a JSON document, as an event for a mapping. Pure."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import Final

from eventing.auth.signatures import SCHEMES
from eventing.errors import BadEvent, shown
from eventing.http import Headers, only
from eventing.mapping.presets import FOREIGN
from eventing.objects.event import Event
from eventing.objects.json_body import decode_json
from eventing.objects.ports import EventSource

_JSON: Final = (b"application/json", b"text/json")


def is_event(headers: Headers) -> bool:
    """Whether the request says that it carries CloudEvents."""
    return any(
        name == b"ce-specversion" or (name == b"content-type" and value.lower().startswith(b"application/cloudevents"))
        for name, value in headers
    )


def from_foreign(headers: Headers, body: bytes, sender: EventSource) -> Event:
    """The document as an event of `sender`; its id is that of the delivery, else the body's hash. Raises BadEvent."""
    media_type = only(headers, b"content-type").partition(b";")[0].strip().lower()
    if media_type not in _JSON:
        message = f"Content-Type {shown(media_type.decode('latin-1'))} is not read here: send application/json"
        raise BadEvent(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
    data = decode_json(body)
    delivery = next((value for scheme in SCHEMES if (value := only(headers, scheme.id))), b"")
    return Event(
        id=delivery.decode("latin-1") or hashlib.sha256(body).hexdigest(),
        source=sender.source.rstrip("*") or f"/events/{sender.namespace}/{sender.name}",
        type=FOREIGN,
        datacontenttype="application/json",
        data=data,
    )
