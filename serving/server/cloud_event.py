"""CloudEvents 1.0 over HTTP, binary and structured: an event of headers and body, headers and body of an event. Pure.

Sources: CloudEvents `spec.md`, `http-protocol-binding.md`, `json-format.md`. The Python SDK (2.2) is not used here: it
takes an event without id and makes one up, and answers bad bytes with exceptions of five unrelated kinds.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

from serving.server.errors import BadRequest, UnsupportedType
from serving.server.event_gate import EVENT_TYPES, PREFIX
from serving.server.messages import reason_of

Headers = Sequence[tuple[bytes, bytes]]

SPECVERSION: Final = "1.0"
STRUCTURED: Final = b"application/cloudevents+json"
JSON_TYPE: Final = "application/json"
LONGEST: Final = 2048  # characters of an attribute: answers repeat some, and a head has 32 KiB
_REQUIRED: Final = ("id", "source", "type")
_NAME: Final = re.compile(r"[a-z0-9]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_URI_REFERENCE: Final = re.compile(r"(?:[\w.~:/?#\[\]@!$&'()*+,;=-]|%[0-9a-fA-F]{2})+", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_IN_HEADERS: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""What stands for itself in a header; the rest is percent-encoded (`http-protocol-binding.md`, 3.1.3.2)."""


@dataclass(frozen=True, slots=True)
class Event:
    """Attributes by name, `specversion` and `datacontenttype` left out, and the data of type `content_type`."""

    attributes: Mapping[str, str]
    content_type: str = JSON_TYPE
    data: bytes = b""


def is_structured(headers: Headers) -> bool:
    """Whether the event is the body, and not its data only. Raises UnsupportedType for batches and other formats."""
    for name, value in headers:
        if name == b"content-type" and value.lower().startswith(EVENT_TYPES):
            kind, _, parameters = value.lower().partition(b";")
            charset = parameters.strip().replace(b'"', b"").replace(b" ", b"")
            if kind.strip() != STRUCTURED or charset not in (b"", b"charset=utf-8"):
                raise UnsupportedType(f"an event is {STRUCTURED.decode()} in UTF-8, one at a time, or in binary mode")
            return True
    return False


def from_binary(headers: Headers) -> Event:
    """The event whose attributes are `headers`; its data is left where it is. Raises BadRequest."""
    attributes: dict[str, str] = {}
    for name, value in headers:
        if name[:3] == PREFIX:
            key = name[3:].decode("latin-1")
            if key in attributes:
                raise BadRequest(f"the event has two headers {name.decode('latin-1')!r}")
            attributes[key] = _unquoted(key, value)
    return Event(_checked(attributes))


def from_structured(body: bytes) -> Event:
    """The event that is `body`, its data as bytes. Raises BadRequest."""
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        base64_data = members.pop("data_base64", None)
        data = members.pop("data", None)
        decoded = {name: msgspec.json.decode(raw, type=str | bool | int | None) for name, raw in members.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the event is no event in JSON: {reason_of(error)}") from error
    attributes = {name: _canonical(value) for name, value in decoded.items() if value is not None}
    content_type = attributes.pop("datacontenttype", JSON_TYPE)
    if data is not None and base64_data is not None:
        raise BadRequest("the event has both data and data_base64")
    content = _from_base64(base64_data) if base64_data is not None else bytes(data or b"")
    return Event(_checked(attributes), _checked_type(content_type), content)


def to_binary(event: Event) -> list[tuple[bytes, bytes]]:
    """The headers of an answer whose body is the event's data."""
    attributes = {"specversion": SPECVERSION, **event.attributes}
    return [
        (PREFIX + name.encode(), quote(value, safe=_IN_HEADERS).encode("ascii")) for name, value in attributes.items()
    ]


def to_structured(event: Event) -> bytes:
    """The event in JSON; its data is JSON."""
    members: dict[str, Any] = {"specversion": SPECVERSION, **event.attributes, "datacontenttype": event.content_type}
    return msgspec.json.encode({**members, "data": msgspec.Raw(event.data)})


def _checked(attributes: dict[str, str]) -> dict[str, str]:
    faults = "; ".join(_faults(attributes))
    if faults:
        raise BadRequest(f"the event is no CloudEvent: {faults}")
    return {name: value for name, value in attributes.items() if name != "specversion"}


def _faults(attributes: Mapping[str, str]) -> Iterator[str]:
    if attributes.get("specversion") != SPECVERSION:
        yield f"specversion is not {SPECVERSION}"
    yield from (f"{name} is missing" for name in _REQUIRED if not attributes.get(name))
    for name, value in attributes.items():
        if not _NAME.fullmatch(name):
            yield "an attribute's name has other characters than a-z and 0-9"
        elif len(value) > LONGEST or _CONTROL.search(value):
            yield f"{name} has more than {LONGEST} or control characters"
    if attributes.get("source") and not _URI_REFERENCE.fullmatch(attributes["source"]):
        yield "source is no URI reference"
    if "time" in attributes and not _is_time(attributes["time"]):
        yield "time is no RFC 3339 time"


def _is_time(value: str) -> bool:
    if not _TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value.upper())
    except ValueError:
        return False
    return True


def _unquoted(name: str, value: bytes) -> str:
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the event's {name[:LONGEST]!r} is no UTF-8") from error


def _canonical(value: str | bool | int) -> str:
    """As text, the way the specification writes booleans and integers ("Type System")."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _checked_type(content_type: str) -> str:
    if not content_type.isascii() or _CONTROL.search(content_type) or len(content_type) > LONGEST:
        raise BadRequest("the event's datacontenttype is no media type")
    return content_type


def _from_base64(raw: msgspec.Raw) -> bytes:
    try:
        return base64.b64decode(msgspec.json.decode(raw, type=str), validate=True)
    except (msgspec.DecodeError, UnicodeDecodeError, binascii.Error, ValueError) as error:
        raise BadRequest("the event's data_base64 is no base64") from error
