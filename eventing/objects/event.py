"""CloudEvents 1.0 from HTTP: headers and body to events, in binary, structured and batch mode. Pure.

The SDK is the codec (`cloudevents.core.bindings.http`). It is given a format and an event class that are strict: its
own make up a missing id, which defeats deduplication, take the last of two equal JSON names, and answer bad bytes with
errors of five unrelated kinds. It knows no batches (2.2): the array is taken apart here. It takes a third of the time
that an event may cost, so what is JSON and beyond doubt goes past it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

import msgspec
from cloudevents.core.base import BaseCloudEvent, EventFactory
from cloudevents.core.bindings.http import HTTPMessage, from_binary
from cloudevents.core.exceptions import CloudEventValidationError
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from eventing.errors import BadEvent, shown
from eventing.objects.attributes import CORE, LONGEST, are_plain, canonical, check, header_text, time_of
from eventing.objects.json_body import decode_json

Headers = Iterable[tuple[bytes, bytes]]
"""As ASGI has them: names in lower case."""

EVENT_TYPES: Final = "application/cloudevents"  # how every media type of events begins
STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
JSON: Final = "application/json"
MOST_EVENTS: Final = 1000
"""Of one batch: a transaction of as many takes the embedded store 50 ms, during which nobody else writes."""
_PREFIX: Final = "ce-"
_IS_JSON: Final = re.compile(r"(?:application|text)/(?:[\w.!#$&^-]+\+)?json", re.ASCII)


class Mode(Enum):
    """Content modes of the HTTP binding."""

    BINARY = "binary"
    STRUCTURED = "structured"
    BATCH = "batch"


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One checked event; a Struct, since there may be 20 000 a second.

    `time` is aware; `extensions` are texts as the specification writes them; `data` is a JSON value, a text of another
    text type, bytes of all else, and None without data. Empty texts: not given.
    """

    id: str
    source: str
    type: str
    time: datetime | None = None
    subject: str = ""
    datacontenttype: str = ""
    dataschema: str = ""
    extensions: Mapping[str, str] = {}
    data: Any = None


@dataclass(frozen=True, slots=True)
class Malformed:
    """A member of a batch that is no event; `id` and `source` as far as they can be told."""

    id: str
    source: str
    error: BadEvent


def mode_of(headers: Headers) -> Mode:
    """How the events come. Raises BadEvent: 415 for no event in a known format, 400 for two types."""
    types = [value for name, value in headers if name == b"content-type"]
    if len(types) > 1:
        raise BadEvent(HTTPStatus.BAD_REQUEST, "the request has two headers Content-Type")
    media_type, charset = _media_type(types[0] if types else b"")
    if media_type.startswith(EVENT_TYPES):
        if media_type not in (STRUCTURED, BATCH) or charset not in ("", "utf-8"):
            raise _unsupported(media_type)
        return Mode.STRUCTURED if media_type == STRUCTURED else Mode.BATCH
    if not _IS_JSON.fullmatch(media_type) and not any(name.startswith(b"ce-") for name, _ in headers):
        raise _unsupported(media_type)
    return Mode.BINARY


def from_http(headers: Headers, body: bytes, mode: Mode | None = None) -> list[Event | Malformed]:
    """The events of a request, in their order; `mode` where it is known. Raises BadEvent (400, 413 too many, 415); in a
    batch an event of it may be malformed without the others."""
    mode = mode or mode_of(headers)
    if mode is Mode.BATCH:
        return _from_batch(body)
    try:
        if mode is Mode.STRUCTURED:
            return [_of_members(decode_json(body))]
        return [_event(from_binary(HTTPMessage(_event_headers(headers), body), _FORMAT, _StrictEvent))]
    except CloudEventValidationError as error:
        raise _refused(error) from error


def _from_batch(body: bytes) -> list[Event | Malformed]:
    members = decode_json(body)
    if not isinstance(members, list):
        raise BadEvent(HTTPStatus.BAD_REQUEST, "a batch is a JSON array of events")
    if len(members) > MOST_EVENTS:
        message = f"the batch has {len(members)} events: send at most {MOST_EVENTS} at once"
        raise BadEvent(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
    return [_of_batch(member) for member in members]


def _of_batch(member: object) -> Event | Malformed:
    try:
        return _of_members(member)
    except CloudEventValidationError as error:
        return _malformed(member, _refused(error))
    except BadEvent as error:
        return _malformed(member, error)


def _malformed(member: object, error: BadEvent) -> Malformed:
    given = member if isinstance(member, dict) else {}
    told = (str(value)[:LONGEST] if isinstance(value := given.get(key), str) else "" for key in ("id", "source"))
    return Malformed(next(told), next(told), error)


class _StrictEvent(CloudEvent):
    """The SDK's event, which makes nothing up and leaves the caller's attributes as they are."""

    def __init__(self, attributes: dict[str, Any], data: Any = None) -> None:
        check(attributes)
        super().__init__(dict(attributes), data)
        if "time" not in attributes:
            del self._attributes["time"]


class _StrictFormat(JSONFormat):
    """The SDK's JSON format over a strict decoder, for data; wrong data is an error, not a text."""

    def read_data(self, body: bytes, datacontenttype: str | None) -> Any:
        """The body of an event in binary mode. Raises BadEvent."""
        if not body:
            return None
        media_type, charset = _media_type((datacontenttype or JSON).encode("latin-1", "replace"))
        if _IS_JSON.fullmatch(media_type):
            return decode_json(body)
        if not media_type.startswith("text/") or charset not in ("", "utf-8", "us-ascii"):
            return body
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise BadEvent(HTTPStatus.BAD_REQUEST, f"the data is no UTF-8: {error.reason}") from error


_FORMAT: Final = _StrictFormat()


def _of_members(members: object) -> Event:
    """An event of the members of a JSON object. Raises BadEvent, CloudEventValidationError."""
    if not isinstance(members, dict):
        raise BadEvent(HTTPStatus.BAD_REQUEST, "an event is a JSON object")
    attributes = dict(members)
    data = attributes.pop("data", None)
    if not are_plain(attributes):
        return _event(_by_sdk(_StrictEvent, members))
    time = attributes.get("time")
    return Event(
        id=attributes["id"],
        source=attributes["source"],
        type=attributes["type"],
        time=None if time is None else time_of(time),
        subject=attributes.get("subject", ""),
        datacontenttype=attributes.get("datacontenttype", ""),
        extensions={} if CORE.issuperset(attributes) else _extensions(attributes),
        data=data,
    )


def _by_sdk(factory: EventFactory, members: Mapping[str, Any]) -> BaseCloudEvent:
    """Null is as good as not there (`json-format.md` §2.2)."""
    given = {name: value for name, value in members.items() if value is not None}
    data, encoded = given.pop("data", None), given.pop("data_base64", None)
    if encoded is not None:
        if data is not None:
            raise BadEvent(HTTPStatus.BAD_REQUEST, "the event has both data and data_base64")
        data = _decoded(encoded)
    return factory({name: canonical(name, value) for name, value in given.items()}, data)


def _decoded(encoded: object) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)  # type: ignore[arg-type]
    except (binascii.Error, TypeError, ValueError) as error:
        raise BadEvent(HTTPStatus.BAD_REQUEST, "the event's data_base64 is no base64") from error


def _event_headers(headers: Headers) -> dict[str, str]:
    """Those that belong to the event, as the SDK wants them."""
    found: dict[str, str] = {}
    for raw, value in headers:
        name = raw.decode("latin-1")
        if not name.startswith(_PREFIX) and name != "content-type":
            continue
        if name in found:
            raise BadEvent(HTTPStatus.BAD_REQUEST, f"the request has two headers {shown(name)}")
        found[name] = header_text(name, value) if name.startswith(_PREFIX) else value.decode("latin-1")
    if "ce-datacontenttype" in found:
        raise BadEvent(HTTPStatus.BAD_REQUEST, "datacontenttype is the header Content-Type in binary mode")
    if "ce-time" in found:
        time_of(found["ce-time"])
    return found


def _event(event: BaseCloudEvent) -> Event:
    attributes = event.get_attributes()
    return Event(
        id=attributes["id"],
        source=attributes["source"],
        type=attributes["type"],
        time=attributes.get("time"),
        subject=attributes.get("subject", ""),
        datacontenttype=attributes.get("datacontenttype", ""),
        dataschema=attributes.get("dataschema", ""),
        extensions=_extensions(attributes),
        data=event.get_data(),
    )


def _extensions(attributes: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in attributes.items() if name not in CORE}


@lru_cache(16)  # of a few kinds come nearly all
def _media_type(value: bytes) -> tuple[str, str]:
    """(media type, charset), in lower case; charset is empty when it is not given."""
    media_type, _, parameters = value.decode("latin-1").lower().partition(";")
    charsets = [one.partition("=")[2] for one in parameters.split(";") if one.strip().startswith("charset=")]
    return media_type.strip(), charsets[0].strip(' \t"') if charsets else ""


def _unsupported(media_type: str) -> BadEvent:
    message = f"Content-Type {shown(media_type)} holds no event: send {STRUCTURED} or {BATCH} in UTF-8, or headers ce-*"
    return BadEvent(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)


def _refused(error: CloudEventValidationError) -> BadEvent:
    faults = "; ".join(str(fault) for faults in error.errors.values() for fault in faults)
    return BadEvent(HTTPStatus.BAD_REQUEST, f"this is no CloudEvent 1.0: {faults[:500]}")
