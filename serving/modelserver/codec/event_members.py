"""Parse the members of a CloudEvent in JSON: few small attributes, and data that may be large. Pure.

No Python objects are made of members other than attributes and data, so that an event with millions of members is
refused at the cost of a scan. Duplicate names are refused; a decoder would ignore them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from clusters.base.sizes import format_size
from serving.modelserver.base.errors import ContentTooLarge, InvalidRequest
from serving.modelserver.codec.messages import explain_decode_error

Value: TypeAlias = str | bool | int | None

MAX_MEMBERS: Final = 100  # members, the limit on headers of a request
MAX_SIZE: Final = 64 * 1024  # bytes of all members except the data: twice the limit of binary mode
_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_NAME: Final = re.compile(rb"\s*(" + _STRING + rb")\s*:\s*", re.DOTALL)
_SCALAR: Final = re.compile(_STRING + rb"|[\w.+-]+", re.DOTALL)
_NEXT: Final = re.compile(rb"\s*([,}])")


class _Data(msgspec.Struct):
    """The members that may be large. The decoder skips all others, and checks that they are JSON."""

    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def parse_members(body: bytes) -> tuple[Mapping[str, Value], bytes]:
    """Return all members except the data, and the data. Raises InvalidRequest, ContentTooLarge."""
    try:
        large = msgspec.json.decode(body, type=_Data)
        given = {name: raw for name in _Data.__struct_fields__ if (raw := getattr(large, name)) is not msgspec.UNSET}
        if len(body) - sum(map(len, given.values())) > MAX_SIZE:
            raise ContentTooLarge(
                f"the event is too large: at most {format_size(MAX_SIZE)} besides its data are allowed"
            )
        found = _scan(body, {name: len(raw) for name, raw in given.items()})
        members = {name: msgspec.json.decode(value, type=Value) for name, value in found.items() if name not in given}
        return members, _data(given)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is not a CloudEvent in JSON: {explain_decode_error(error)}") from error


def _scan(body: bytes, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """Return the members of a JSON object as unparsed JSON. Members in `sizes` (bytes) are skipped, and empty here."""
    found: dict[str, bytes] = {}
    place, following = body.index(b"{") + 1, b","
    while following == b",":
        named = _NAME.match(body, place)
        if named is None:
            break  # the object is empty or malformed
        name = msgspec.json.decode(named[1], type=str)
        if name in found or len(found) == MAX_MEMBERS:
            raise InvalidRequest(f"the event has a duplicate member, or more than {MAX_MEMBERS} members")
        if name in sizes:
            found[name] = b""
            place = named.end() + sizes[name]
        else:
            value = _SCALAR.match(body, named.end())
            if value is None:
                raise InvalidRequest("an attribute of the event is not a string, an integer or a boolean")
            found[name], place = value[0], value.end()
        end = _NEXT.match(body, place)
        following, place = (end[1], end.end()) if end is not None else (b"", place)
    if following != b"}" and found:
        raise InvalidRequest("the event has a duplicate member")  # the known size is that of the other one
    return found


def _data(given: Mapping[str, msgspec.Raw]) -> bytes:
    if len(given) > 1:
        raise InvalidRequest("the event has both data and data_base64")
    if "data" in given:
        return bytes(given["data"])
    if "data_base64" not in given:
        return b""
    try:
        return msgspec.json.decode(given["data_base64"], type=bytes)
    except msgspec.DecodeError as error:
        raise InvalidRequest("the event's data_base64 is not base64") from error
