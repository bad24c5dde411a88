"""CloudEvents as inference requests, in binary and structured mode, whose data stays undecoded. Pure.

`clusters.net.cloudevents` has the rules. Here, attributes must also fit in the headers of a response, and large data in
JSON is found without decoding it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec

from clusters.base.sizes import format_size
from clusters.net import cloudevents
from clusters.net.cloudevents import JSON, BadEvent, ContentMode
from serving.modelserver.base.errors import ContentTooLarge, InvalidRequest, UnsupportedType
from serving.modelserver.base.headers import Headers
from serving.modelserver.codec.event_members import parse_members

MAX_ATTRIBUTE_SIZE: Final = 2048  # bytes as a header: responses repeat some, and a head has at most 32 KiB
_ERRORS: Final = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: ContentTooLarge,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: UnsupportedType,
}


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """The attributes of an event, without `specversion` and `datacontenttype`, and its data of type `content_type`."""

    attributes: Mapping[str, str]
    content_type: str = JSON
    data: bytes = b""


def is_structured(headers: Headers) -> bool:
    """Return whether the event is in structured mode. Raises UnsupportedType for batches and other formats."""
    with _serving_errors():
        mode = cloudevents.mode_of(headers)
    if mode is ContentMode.BATCH:
        raise UnsupportedType(f"batches of events are not supported: send one {cloudevents.STRUCTURED} per request")
    return mode is ContentMode.STRUCTURED


def from_binary(headers: Headers) -> CloudEvent:
    """Return the event with the attributes in `headers`, and no data. Raises InvalidRequest."""
    with _serving_errors():
        attributes = cloudevents.from_headers(pair for pair in headers if pair[0] != b"content-type")
    return CloudEvent(_checked(attributes))


def from_structured(body: bytes) -> CloudEvent:
    """Return the event in the JSON `body`. Raises InvalidRequest, ContentTooLarge."""
    members, data = parse_members(body)
    with _serving_errors():
        attributes = cloudevents.from_members(members)
    content_type = attributes.get("datacontenttype", JSON)
    if not content_type.isascii():  # the data is a request with this Content-Type
        raise InvalidRequest("datacontenttype of the event has characters beyond ASCII")
    return CloudEvent(_checked(attributes), content_type, data)


def to_binary(event: CloudEvent) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response in binary mode, whose body is the data of the event."""
    return cloudevents.to_headers(event.attributes)


def to_structured(event: CloudEvent) -> bytes:
    """Return the event in JSON; its data must be JSON."""
    return msgspec.json.encode(cloudevents.to_members(event.attributes, msgspec.Raw(event.data)))


def _checked(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes to repeat. Raises InvalidRequest for one that does not fit in a header."""
    for name, value in attributes.items():
        if len(cloudevents.encode_header(value)) > MAX_ATTRIBUTE_SIZE:
            raise InvalidRequest(
                f"attribute {name} of the event has more than {format_size(MAX_ATTRIBUTE_SIZE)} as a header"
            )
    return {name: value for name, value in attributes.items() if name not in ("specversion", "datacontenttype")}


@contextmanager
def _serving_errors() -> Iterator[None]:
    try:
        yield
    except BadEvent as error:
        raise _ERRORS.get(error.status, InvalidRequest)(str(error)) from error
