"""Codec of CloudEvents 1.0 over HTTP, in binary and structured mode. Pure.

Sources: CloudEvents `spec.md`, `http-protocol-binding.md`, `json-format.md`. The Python SDK (2.2) is not used: it
invents an id for an event without one, and raises five unrelated exceptions for invalid bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

from clusters.base.sizes import format_size
from serving.modelserver.base.errors import InvalidRequest, UnsupportedType
from serving.modelserver.base.headers import Headers, media_type
from serving.modelserver.codec.content_router import EVENT_TYPES, PREFIX
from serving.modelserver.codec.event_members import parse_members

SPECVERSION: Final = "1.0"
STRUCTURED: Final = b"application/cloudevents+json"
JSON_TYPE: Final = "application/json"
MAX_ATTRIBUTE_SIZE: Final = 2048  # bytes as a header: responses repeat some, and a head has at most 32 KiB
_MAX_FAULTS: Final = 10  # faults in one message
_MAX_QUOTED: Final = 100  # characters of a name that a message repeats
_REQUIRED: Final = ("id", "source", "type")
_TEXTS: Final = frozenset({"specversion", *_REQUIRED, "datacontenttype", "dataschema", "subject", "time"})
"""Attributes of the specification, all of which are strings in JSON (`json-format.md`, 2.2)."""
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_NAME: Final = re.compile(r"[a-z0-9]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_URI_REFERENCE: Final = re.compile(r"(?:[\w.~:/?#\[\]@!$&'()*+,;=-]|%[0-9a-fA-F]{2})+", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_IN_HEADERS: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""Characters that are not percent-encoded in headers (`http-protocol-binding.md`, 3.1.3.2)."""


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """The attributes of an event, without `specversion` and `datacontenttype`, and its data of type `content_type`."""

    attributes: Mapping[str, str]
    content_type: str = JSON_TYPE
    data: bytes = b""


def is_structured(headers: Headers) -> bool:
    """Return whether the event is in structured mode. Raises UnsupportedType for batches and other formats."""
    for name, value in headers:
        if name == b"content-type" and value.lower().startswith(EVENT_TYPES):
            if media_type(value) != (STRUCTURED, True):
                raise UnsupportedType(
                    f"unsupported event format: send one {STRUCTURED.decode()} in UTF-8, or use binary mode"
                )
            return True
    return False


def from_binary(headers: Headers) -> CloudEvent:
    """Return the event with the attributes in `headers`, and no data. Raises InvalidRequest."""
    attributes: dict[str, str] = {}
    for name, value in headers:
        if name[:3] == PREFIX:
            key = name[3:].decode("latin-1")
            if key in attributes:
                raise InvalidRequest(f"the event has a duplicate header {name.decode('latin-1')!r}")
            if len(value) > 1 and value[:1] == value[-1:] == b'"':  # optional quotes (3.1.3.2)
                value = _ESCAPED.sub(rb"\1", value[1:-1])
            try:
                attributes[key] = unquote_to_bytes(value).decode()
            except UnicodeDecodeError as error:
                raise InvalidRequest(f"attribute {key[:_MAX_QUOTED]!r} of the event is not UTF-8") from error
    return CloudEvent(_checked(attributes))


def from_structured(body: bytes) -> CloudEvent:
    """Return the event in the JSON `body`. Raises InvalidRequest."""
    members, data = parse_members(body)
    attributes = {name: _canonical(name, value) for name, value in members.items() if value is not None}
    content_type = attributes.pop("datacontenttype", JSON_TYPE)
    if not content_type.isascii() or _CONTROL.search(content_type) or len(content_type) > MAX_ATTRIBUTE_SIZE:
        raise InvalidRequest("the event's datacontenttype is not a media type")
    return CloudEvent(_checked(attributes), content_type, data)


def to_binary(event: CloudEvent) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response in binary mode, whose body is the data of the event."""
    attributes = {"specversion": SPECVERSION, **event.attributes}
    return [(PREFIX + name.encode(), _quoted(value).encode("ascii")) for name, value in attributes.items()]


def to_structured(event: CloudEvent) -> bytes:
    """Return the event in JSON; its data must be JSON."""
    members: dict[str, Any] = {"specversion": SPECVERSION, **event.attributes, "datacontenttype": event.content_type}
    return msgspec.json.encode({**members, "data": msgspec.Raw(event.data)})


def _checked(attributes: dict[str, str]) -> dict[str, str]:
    faults = "; ".join(islice(_faults(attributes), _MAX_FAULTS))
    if faults:
        raise InvalidRequest(f"the event is not a CloudEvent: {faults}")
    return {name: value for name, value in attributes.items() if name != "specversion"}


def _faults(attributes: Mapping[str, str]) -> Iterator[str]:
    if attributes.get("specversion") != SPECVERSION:
        yield f"specversion is not {SPECVERSION}"
    yield from (f"{name} is missing" for name in _REQUIRED if not attributes.get(name))
    for name, value in attributes.items():
        if not _NAME.fullmatch(name):
            yield "an attribute's name has characters other than a-z and 0-9"
        elif len(value) > MAX_ATTRIBUTE_SIZE or _CONTROL.search(value) or len(_quoted(value)) > MAX_ATTRIBUTE_SIZE:
            limit = format_size(MAX_ATTRIBUTE_SIZE)
            yield f"{name[:_MAX_QUOTED]} has control characters, or more than {limit} as a header"
    if attributes.get("source") and not _URI_REFERENCE.fullmatch(attributes["source"]):
        yield "source is not a URI reference"
    if "time" in attributes:
        time = attributes["time"]
        try:
            is_time = _TIME.fullmatch(time) is not None and bool(datetime.fromisoformat(time.upper()))
        except ValueError:
            is_time = False
        if not is_time:
            yield "time is not an RFC 3339 time"


def _quoted(value: str) -> str:
    return quote(value, safe=_IN_HEADERS)


def _canonical(name: str, value: str | bool | int) -> str:
    """Return a value as text. Extensions may be booleans and integers, whose format is in "Type System" of the spec."""
    if isinstance(value, str):
        return value
    if name in _TEXTS:
        raise InvalidRequest(f"attribute {name} of the event is not a string")
    return str(value).lower() if isinstance(value, bool) else str(value)
