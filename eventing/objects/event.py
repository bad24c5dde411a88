"""Parses CloudEvents 1.0 from HTTP requests in binary, structured and batch mode. Pure.

The codec is the SDK (`cloudevents.core.bindings.http`) with a strict format and a strict event class. The SDK's own
classes invent a missing id, which defeats deduplication, accept duplicate JSON names, and raise five unrelated kinds of
errors for bad bytes. The SDK (2.2) does not support batches, so the array is split here. It takes a third of the time
budget of an event, so plain JSON events bypass it.
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

from clusters.net import strict_json
from clusters.net.strict_json import BadJson, TooManyValues
from eventing.errors import BadEvent, quoted
from eventing.objects.attributes import CORE, LONGEST, are_plain, canonical, check, header_text, time_of

Headers = Iterable[tuple[bytes, bytes]]
"""Request headers as in an ASGI scope; names are in lower case."""

EVENT_TYPES: Final = "application/cloudevents"  # prefix of all media types of events
STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
JSON: Final = "application/json"
MOST_EVENTS: Final = 1000
"""Maximum events of one batch: its transaction blocks other writes to the embedded store for 50 ms."""
_PREFIX: Final = "ce-"
_IS_JSON: Final = re.compile(r"(?:application|text)/(?:[\w.!#$&^-]+\+)?json", re.ASCII)


class ContentMode(Enum):
    """Content modes of the HTTP binding."""

    BINARY = "binary"
    STRUCTURED = "structured"
    BATCH = "batch"


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A checked event. It is a Struct for speed: there may be 20 000 a second.

    `time` is timezone-aware; `extensions` are canonical texts; `data` is a JSON value, a str for other text types,
    bytes for all other types, and None without data. Absent attributes are empty texts.
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
    """A member of a batch that is not a valid event; `id` and `source` are empty if unknown."""

    id: str
    source: str
    error: BadEvent


def mode_of(headers: Headers) -> ContentMode:
    """Return the content mode of a request. Raises BadEvent: 415 for an unknown format, 400 for two Content-Types."""
    types = [value for name, value in headers if name == b"content-type"]
    if len(types) > 1:
        raise BadEvent(HTTPStatus.BAD_REQUEST, "the request has two headers Content-Type")
    media_type, charset = _media_type(types[0] if types else b"")
    if media_type.startswith(EVENT_TYPES):
        if media_type not in (STRUCTURED, BATCH) or charset not in ("", "utf-8"):
            raise _unsupported(media_type)
        return ContentMode.STRUCTURED if media_type == STRUCTURED else ContentMode.BATCH
    if not _IS_JSON.fullmatch(media_type) and not any(name.startswith(b"ce-") for name, _ in headers):
        raise _unsupported(media_type)
    return ContentMode.BINARY


def from_http(headers: Headers, body: bytes, mode: ContentMode | None = None) -> list[Event | Malformed]:
    """Return the events of a request, in order; `mode`: the content mode, if it is known already.

    Raises BadEvent (400, 413, 415). In a batch, malformed events are returned as Malformed among the others.
    """
    mode = mode or mode_of(headers)
    if mode is ContentMode.BATCH:
        return _from_batch(body)
    try:
        if mode is ContentMode.STRUCTURED:
            return [_of_members(decode_json(body))]
        return [_event(from_binary(HTTPMessage(_event_headers(headers), body), _FORMAT, _StrictEvent))]
    except CloudEventValidationError as error:
        raise _refused(error) from error


def _from_batch(body: bytes) -> list[Event | Malformed]:
    members = decode_json(body)
    if not isinstance(members, list):
        raise BadEvent(HTTPStatus.BAD_REQUEST, "the batch is not a JSON array of events")
    if len(members) > MOST_EVENTS:
        message = f"the batch has {len(members)} events: send at most {MOST_EVENTS} in one request"
        raise BadEvent(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
    events: list[Event | Malformed] = []
    for member in members:
        try:
            events.append(_of_members(member))
        except CloudEventValidationError as error:
            events.append(_malformed(member, _refused(error)))
        except BadEvent as error:
            events.append(_malformed(member, error))
    return events


def _malformed(member: object, error: BadEvent) -> Malformed:
    given = member if isinstance(member, dict) else {}
    known_id, source = given.get("id"), given.get("source")
    return Malformed(
        known_id[:LONGEST] if isinstance(known_id, str) else "",
        source[:LONGEST] if isinstance(source, str) else "",
        error,
    )


class _StrictEvent(CloudEvent):
    """The SDK's event without default attributes; the caller's attributes are not modified."""

    def __init__(self, attributes: dict[str, Any], data: Any = None) -> None:
        check(attributes)
        super().__init__(dict(attributes), data)
        if "time" not in attributes:
            del self._attributes["time"]


class _StrictFormat(JSONFormat):
    """The SDK's JSON format with a strict decoder: invalid JSON data is an error, not a str."""

    def read_data(self, body: bytes, datacontenttype: str | None) -> Any:
        """Return the data of an event in binary mode. Raises BadEvent."""
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
            raise BadEvent(HTTPStatus.BAD_REQUEST, f"the data is not UTF-8: {error.reason}") from error


_FORMAT: Final = _StrictFormat()


def decode_json(body: bytes) -> Any:
    """Decode any JSON value. Raises BadEvent (400; 413 for too many values)."""
    try:
        return strict_json.decode(body)
    except TooManyValues as error:
        raise BadEvent(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error)) from error
    except BadJson as error:
        raise BadEvent(HTTPStatus.BAD_REQUEST, str(error)) from error


def _of_members(members: object) -> Event:
    """Return the event of a JSON object. Raises BadEvent, CloudEventValidationError."""
    if not isinstance(members, dict):
        raise BadEvent(HTTPStatus.BAD_REQUEST, "the event is not a JSON object")
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
    """Return the SDK's event. Members that are null count as absent (`json-format.md` §2.2)."""
    given = {name: value for name, value in members.items() if value is not None}
    data, encoded = given.pop("data", None), given.pop("data_base64", None)
    if encoded is not None:
        if data is not None:
            raise BadEvent(HTTPStatus.BAD_REQUEST, "the event has both data and data_base64")
        try:
            data = base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise BadEvent(HTTPStatus.BAD_REQUEST, "the event's data_base64 is not base64") from error
    return factory({name: canonical(name, value) for name, value in given.items()}, data)


def _event_headers(headers: Headers) -> dict[str, str]:
    """Return the headers of the event for the SDK. Raises BadEvent (400)."""
    found: dict[str, str] = {}
    for raw, value in headers:
        name = raw.decode("latin-1")
        if not name.startswith(_PREFIX) and name != "content-type":
            continue
        if name in found:
            raise BadEvent(HTTPStatus.BAD_REQUEST, f"the request has two headers {quoted(name)}")
        found[name] = header_text(name, value) if name.startswith(_PREFIX) else value.decode("latin-1")
    if "ce-datacontenttype" in found:
        message = "the header ce-datacontenttype is not allowed: in binary mode, set Content-Type instead"
        raise BadEvent(HTTPStatus.BAD_REQUEST, message)
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


@lru_cache(16)  # nearly all requests have one of a few values
def _media_type(value: bytes) -> tuple[str, str]:
    """Return (media type, charset) in lower case; charset is empty without one."""
    media_type, _, parameters = value.decode("latin-1").lower().partition(";")
    charsets = [one.partition("=")[2] for one in parameters.split(";") if one.strip().startswith("charset=")]
    return media_type.strip(), charsets[0].strip(' \t"') if charsets else ""


def _unsupported(media_type: str) -> BadEvent:
    message = (
        f"Content-Type {quoted(media_type)} is not one of CloudEvents: send {STRUCTURED} or {BATCH} in UTF-8, or "
        "headers ce-*"
    )
    return BadEvent(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)


def _refused(error: CloudEventValidationError) -> BadEvent:
    faults = "; ".join(str(fault) for faults in error.errors.values() for fault in faults)
    return BadEvent(HTTPStatus.BAD_REQUEST, f"invalid CloudEvents 1.0 event: {faults[:500]}")
