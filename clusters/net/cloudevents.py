"""The codec of CloudEvents 1.0 over HTTP in binary, structured and batch mode. Pure.

Sources: CloudEvents 1.0.2 `spec.md`, `http-protocol-binding.md`, `json-format.md`; RFC 3986, RFC 3339.

`from_http` decodes whole events. The other functions handle only attributes: `from_headers`, `from_members`,
`to_headers` and `to_members`, for callers that do not decode the data.

The Python SDK (2.2) is not used, except in tests: it invents a missing id, which defeats deduplication. It also accepts
duplicate JSON names, has no batches, and raises five unrelated kinds of errors for bad bytes.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from itertools import islice
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

from clusters.base.errors import KnodelError
from clusters.base.redact import quoted
from clusters.net import strict_json
from clusters.net.strict_json import BadJson, TooManyValues

Headers = Iterable[tuple[bytes, bytes]]
"""Request headers as in an ASGI scope; names are in lower case."""

SPECVERSION: Final = "1.0"
EVENT_TYPES: Final = "application/cloudevents"
"""Prefix of all media types of events."""
STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
JSON: Final = "application/json"
PREFIX: Final = b"ce-"
"""Prefix of headers with attributes in binary mode."""
REQUIRED: Final = ("specversion", "id", "source", "type")
CORE: Final = frozenset({*REQUIRED, "datacontenttype", "dataschema", "subject", "time"})
"""Attributes of the specification; all others are extensions."""
MOST_EVENTS: Final = 1000
"""Maximum events of one batch: its transaction blocks other writes to the embedded store for 50 ms."""
LONGEST: Final = 2048
"""Maximum characters of one attribute, so that it fits in a label of a broker, a header and a log line."""
MOST_ATTRIBUTES: Final = 100
"""Maximum number of attributes: the number of headers that a request may have."""
_MOST_FAULTS: Final = 10  # in one message
_CACHED: Final = 256  # sets of names, and sources, which most events share with others
_NOT_EMPTY: Final = ("subject", "datacontenttype", "dataschema")
_RESERVED: Final = frozenset({"data", "data_base64"})
_NOT_PLAIN: Final = _RESERVED | {"dataschema"}
"""Members that `_are_plain` does not handle."""
_INVALID: Final = "invalid CloudEvents 1.0 event: "
_INTEGERS: Final = range(-(2**31), 2**31)  # `spec.md`, "Type System"
_NAME: Final = re.compile(r"[a-z0-9]{1,64}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_URI_REFERENCE: Final = re.compile(r"(?:[\w.~:/?#\[\]@!$&'()*+,;=-]|%[0-9a-fA-F]{2})+", re.ASCII)
_FORMS: Final = {
    "source": (_URI_REFERENCE, "not a URI reference (RFC 3986): percent-encode other characters"),
    "dataschema": (re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:{_URI_REFERENCE.pattern}", re.ASCII), "not a URI (RFC 3986)"),
    "datacontenttype": (
        re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+[ \t]*(;.*)?", re.ASCII),
        "not a media type (RFC 2046)",
    ),
}
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_IN_HEADERS: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""Characters that are not percent-encoded in headers (`http-protocol-binding.md` §3.1.3.2)."""
_IS_JSON: Final = re.compile(r"(?:application|text)/(?:[\w.!#$&^-]+\+)?json", re.ASCII)


class BadEvent(KnodelError):
    """An event, or a whole request, that is not accepted; `status` is the HTTP status of the response.

    The codec raises it with 400 (not an event), 413 (too many values or events) and 415 (unknown format).
    """

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


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
    if not _IS_JSON.fullmatch(media_type) and not any(name[:3] == PREFIX for name, _ in headers):
        raise _unsupported(media_type)
    return ContentMode.BINARY


def from_http(headers: Headers, body: bytes, mode: ContentMode | None = None) -> list[Event | Malformed]:
    """Return the events of a request, in order; `mode`: the content mode, if it is known already.

    Raises BadEvent (400, 413, 415). In a batch, malformed events are returned as Malformed among the others.

    Example:
        from_http([(b"content-type", b"application/cloudevents+json")], b'{"specversion": "1.0", …}')  # [Event(…)]
    """
    mode = mode or mode_of(headers)
    if mode is ContentMode.BINARY:
        attributes = from_headers(headers)
        return [_event(attributes, _decode_data(body, attributes.get("datacontenttype", JSON)))]
    decoded = decode_json(body)
    if mode is ContentMode.STRUCTURED:
        return [_from_object(decoded)]
    if not isinstance(decoded, list):
        raise BadEvent(HTTPStatus.BAD_REQUEST, "the batch is not a JSON array of events")
    if len(decoded) > MOST_EVENTS:
        message = f"the batch has {len(decoded)} events: send at most {MOST_EVENTS} in one request"
        raise BadEvent(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
    events: list[Event | Malformed] = []
    for member in decoded:
        try:
            events.append(_from_object(member))
        except BadEvent as error:
            given = member if isinstance(member, dict) else {}
            known_id, source = (
                text[:LONGEST] if isinstance(text := given.get(name), str) else "" for name in ("id", "source")
            )
            events.append(Malformed(known_id, source, error))
    return events


def from_headers(headers: Headers) -> dict[str, str]:
    """Return the checked attributes of an event in binary mode; Content-Type is its `datacontenttype`.

    Raises BadEvent (400).
    """
    attributes: dict[str, str] = {}
    for raw, value in headers:
        is_type = raw == b"content-type"
        if not is_type and raw[:3] != PREFIX:
            continue
        if raw == b"ce-datacontenttype":
            message = "the header ce-datacontenttype is not allowed: in binary mode, set Content-Type instead"
            raise BadEvent(HTTPStatus.BAD_REQUEST, message)
        name = "datacontenttype" if is_type else raw[3:].decode("latin-1")
        if name in attributes:
            raise BadEvent(HTTPStatus.BAD_REQUEST, f"the request has two headers {quoted(raw.decode('latin-1'))}")
        attributes[name] = value.decode("latin-1") if is_type else decode_header(raw.decode("latin-1"), value)
    if not attributes.get("datacontenttype", JSON):  # an empty Content-Type
        del attributes["datacontenttype"]
    check_attributes(attributes)
    return attributes


def from_members(members: Mapping[str, Any]) -> dict[str, str]:
    """Return the checked attributes of an event in JSON, given without its data. Raises BadEvent (400).

    Members that are null count as absent (`json-format.md` §2.2). Booleans and integers become their canonical text.
    """
    attributes = {name: _canonical(name, value) for name, value in members.items() if value is not None}
    check_attributes(attributes)
    return attributes


def to_headers(attributes: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return the headers of an event in binary mode, with `specversion`.

    Example:
        to_headers({"id": "1"})  # [(b"ce-specversion", b"1.0"), (b"ce-id", b"1")]
    """
    given = {"specversion": SPECVERSION, **attributes}
    return [(PREFIX + name.encode(), encode_header(value).encode()) for name, value in given.items()]


def to_members(attributes: Mapping[str, str], data: Any) -> dict[str, Any]:
    """Return the members of an event with JSON data in structured mode, with `specversion` and `datacontenttype`."""
    return {"specversion": SPECVERSION, **attributes, "datacontenttype": JSON, "data": data}


def check_attributes(attributes: Mapping[str, str]) -> None:
    """Check all attributes of an event. Raises BadEvent (400) that names their faults."""
    if faults := "; ".join(islice(_faults(attributes), _MOST_FAULTS)):
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"{_INVALID}{faults}")


def decode_header(name: str, value: bytes) -> str:
    """Return the text of a header, without optional quotes and percent-encoding. Raises BadEvent (400).

    Source: `http-protocol-binding.md` §3.1.3.2. The SDK keeps quotes as part of the value, and replaces bad UTF-8 by
    U+FFFD.
    """
    value = value.strip(b" \t")
    if len(value) > 1 and value[:1] == value[-1:] == b'"':
        value = _ESCAPED.sub(rb"\1", value[1:-1])
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError as error:
        message = f"the event's header {quoted(name)} is not percent-encoded UTF-8"
        raise BadEvent(HTTPStatus.BAD_REQUEST, message) from error


def encode_header(value: str) -> str:
    """Return an attribute as the value of a header: printable ASCII, percent-encoded."""
    return quote(value, safe=_IN_HEADERS)


def decode_json(body: bytes) -> Any:
    """Decode any JSON value. Raises BadEvent (400; 413 for too many values)."""
    try:
        return strict_json.decode(body)
    except TooManyValues as error:
        raise BadEvent(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error)) from error
    except BadJson as error:
        raise BadEvent(HTTPStatus.BAD_REQUEST, str(error)) from error


def decode_base64(text: object) -> bytes:
    """Return the bytes of a member `data_base64`. Raises BadEvent (400)."""
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type]
    except (binascii.Error, TypeError, ValueError) as error:
        raise BadEvent(HTTPStatus.BAD_REQUEST, "the event's data_base64 is not base64") from error


def _from_object(members: object) -> Event:
    if not isinstance(members, dict):
        raise BadEvent(HTTPStatus.BAD_REQUEST, "the event is not a JSON object")
    attributes = dict(members)
    data = attributes.pop("data", None)
    if _are_plain(attributes):
        return _event(attributes, data)
    encoded = attributes.pop("data_base64", None)
    if encoded is not None:
        if data is not None:
            raise BadEvent(HTTPStatus.BAD_REQUEST, "the event has both data and data_base64")
        data = decode_base64(encoded)
    return _event(from_members(attributes), data)


def _event(attributes: Mapping[str, str], data: Any) -> Event:
    time = attributes.get("time")
    return Event(
        id=attributes["id"],
        source=attributes["source"],
        type=attributes["type"],
        time=None if time is None else _parse_time(time),
        subject=attributes.get("subject", ""),
        datacontenttype=attributes.get("datacontenttype", ""),
        dataschema=attributes.get("dataschema", ""),
        extensions={}
        if CORE.issuperset(attributes)
        else {name: value for name, value in attributes.items() if name not in CORE},
        data=data,
    )


def _decode_data(body: bytes, content_type: str) -> Any:
    """Return the data of an event in binary mode by its type. Raises BadEvent (400, 413)."""
    if not body:
        return None
    media_type, charset = _media_type(content_type.encode("latin-1", "replace"))
    if _IS_JSON.fullmatch(media_type):
        return decode_json(body)
    if not media_type.startswith("text/") or charset not in ("", "utf-8", "us-ascii"):
        return body
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"the data is not UTF-8: {error.reason}") from error


def _are_plain(members: Mapping[str, Any]) -> bool:
    """Return whether the JSON members of an event, without its data, are valid texts, except for `time`.

    This fast path handles most events with a few checks of all members at once. False means that `from_members` must
    decide.
    """
    try:
        text = "".join(members.values())
    except TypeError:
        return False
    return (
        len(text) <= LONGEST
        and text.isprintable()
        and all(members.values())
        and len(members) <= MOST_ATTRIBUTES
        and len("".join(members)) <= LONGEST  # before it is cached
        and _are_plain_names(tuple(members))
        and members["specversion"] == SPECVERSION
        and _is_uri_reference(members["source"])
        and members.get("datacontenttype", JSON) == JSON
    )


@lru_cache(_CACHED)
def _are_plain_names(names: tuple[str, ...]) -> bool:
    return set(REQUIRED).issubset(names) and _NOT_PLAIN.isdisjoint(names) and all(map(_NAME.fullmatch, names))


@lru_cache(_CACHED)
def _is_uri_reference(text: str) -> bool:
    return _URI_REFERENCE.fullmatch(text) is not None


def _faults(attributes: Mapping[str, str]) -> Iterator[str]:
    yield from (f"{name} is missing" for name in REQUIRED if not attributes.get(name))
    if attributes.get("specversion") not in (None, "", SPECVERSION):
        yield f"specversion is not {SPECVERSION}"
    if len(attributes) > MOST_ATTRIBUTES:
        yield f"it has more than {MOST_ATTRIBUTES} attributes"
    for name, value in attributes.items():
        if not _NAME.fullmatch(name):
            yield f"the attribute name {quoted(name)} is not 1 to 64 characters of a-z and 0-9"
        elif name in _RESERVED:
            yield f"the attribute name {quoted(name)} is reserved"
        elif len(value) > LONGEST:
            yield f"{name} has more than {LONGEST} characters"
        elif _CONTROL.search(value):
            yield f"{name} has control characters"
        elif not value and name in _NOT_EMPTY:
            yield f"{name} is empty"
        elif value and name in _FORMS and not _FORMS[name][0].fullmatch(value):
            yield f"{name} is {_FORMS[name][1]}"
        elif name == "time" and not _is_time(value):
            yield f"time {quoted(value)} is not an RFC 3339 time"


def _canonical(name: str, value: object) -> str:
    """Return a JSON member of an event in the specification's canonical text. Raises BadEvent (400)."""
    if isinstance(value, str):
        return value
    if name in CORE or not isinstance(value, int) or (not isinstance(value, bool) and value not in _INTEGERS):
        kind = "a string" if name in CORE else "a string, a boolean or a 32-bit integer"
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"{_INVALID}{quoted(name)} is not {kind}")
    return str(value).lower()


def _is_time(text: str) -> bool:
    try:
        return _TIME.fullmatch(text) is not None and bool(datetime.fromisoformat(text.upper()))
    except ValueError:  # for example 31 February
        return False


def _parse_time(text: str) -> datetime:
    if not _is_time(text):  # of plain members, whose time is not checked before
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"{_INVALID}time {quoted(text)} is not an RFC 3339 time")
    return datetime.fromisoformat(text.upper())


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
