"""Reads requests of senders that do not support CloudEvents (MLflow): a JSON document becomes an event. Pure."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import Final

from clusters.base.redact import quoted
from clusters.net.cloudevents import BadEvent, Event, decode_json
from eventing.auth.signatures import SCHEMES
from eventing.http import Headers, single_header
from eventing.mapping.presets import PLAIN_JSON
from eventing.objects.ports import EventSource

_JSON: Final = (b"application/json", b"text/json")


def is_cloudevent(headers: Headers) -> bool:
    """Return whether the headers announce CloudEvents in any mode."""
    return any(
        name == b"ce-specversion" or (name == b"content-type" and value.lower().startswith(b"application/cloudevents"))
        for name, value in headers
    )


def event_from_json(headers: Headers, body: bytes, sender: EventSource) -> Event:
    """Return the JSON document as an event of `sender`.

    Its id is the delivery's id header, or the SHA-256 of the body without one. Raises BadEvent (400, 413, 415).
    """
    media_type = single_header(headers, b"content-type").partition(b";")[0].strip().lower()
    if media_type not in _JSON:
        message = f"Content-Type {quoted(media_type.decode('latin-1'))} is not supported here: send application/json"
        raise BadEvent(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
    data = decode_json(body)
    delivery = next((value for scheme in SCHEMES if (value := single_header(headers, scheme.id))), b"")
    return Event(
        id=delivery.decode("latin-1") or hashlib.sha256(body).hexdigest(),
        source=sender.source.rstrip("*") or f"/events/{sender.namespace}/{sender.name}",
        type=PLAIN_JSON,
        datacontenttype="application/json",
        data=data,
    )
