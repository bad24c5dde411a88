"""The members of an event in JSON: few and small ones, and its data, which may be large. Pure.

Nothing is made of what is not an attribute: a sender that writes millions of members gets an error for the price of
finding their ends. A name that comes twice is refused, which a decoder would not notice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from clusters.base.sizes import format_size
from serving.modelserver.base.errors import BadRequest, TooLarge
from serving.modelserver.codec.messages import explain_decode_error

Value: TypeAlias = str | bool | int | None

MOST: Final = 100  # members, as a request has headers
LARGEST: Final = 64 * 1024  # bytes of all but the data: twice what binary mode has room for
_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_NAME: Final = re.compile(rb"\s*(" + _STRING + rb")\s*:\s*", re.DOTALL)
_SCALAR: Final = re.compile(_STRING + rb"|[\w.+-]+", re.DOTALL)
_NEXT: Final = re.compile(rb"\s*([,}])")


class _Data(msgspec.Struct):
    """What may be large; all else is passed over, and found to be JSON."""

    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def parse_members(body: bytes) -> tuple[Mapping[str, Value], bytes]:
    """All members but the data, and the data. Raises BadRequest, TooLarge."""
    try:
        large = msgspec.json.decode(body, type=_Data)
        given = {name: raw for name in _Data.__struct_fields__ if (raw := getattr(large, name)) is not msgspec.UNSET}
        if len(body) - sum(map(len, given.values())) > LARGEST:
            raise TooLarge(f"an event has at most {format_size(LARGEST)} beside its data")
        found = _scan(body, {name: len(raw) for name, raw in given.items()})
        members = {name: msgspec.json.decode(value, type=Value) for name, value in found.items() if name not in given}
        return members, _data(given)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the event is no event in JSON: {explain_decode_error(error)}") from error


def _scan(body: bytes, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """The members of an object, values as they are written; those of known `sizes` are anything, and left out."""
    found: dict[str, bytes] = {}
    place, following = body.index(b"{") + 1, b","
    while following == b",":
        named = _NAME.match(body, place)
        if named is None:
            break  # of an object without members, or we are lost
        name = msgspec.json.decode(named[1], type=str)
        if name in found or len(found) == MOST:
            raise BadRequest(f"the event has a member twice, or more than {MOST}")
        if name in sizes:
            found[name] = b""
            place = named.end() + sizes[name]
        else:
            value = _SCALAR.match(body, named.end())
            if value is None:
                raise BadRequest("an attribute of the event is neither a text, an integer nor a boolean")
            found[name], place = value[0], value.end()
        end = _NEXT.match(body, place)
        following, place = (end[1], end.end()) if end is not None else (b"", place)
    if following != b"}" and found:
        raise BadRequest("the event has a member twice")  # the size that is known is the other one's
    return found


def _data(given: Mapping[str, msgspec.Raw]) -> bytes:
    if len(given) > 1:
        raise BadRequest("the event has both data and data_base64")
    if "data" in given:
        return bytes(given["data"])
    if "data_base64" not in given:
        return b""
    try:
        return msgspec.json.decode(given["data_base64"], type=bytes)
    except msgspec.DecodeError as error:
        raise BadRequest("the event's data_base64 is no base64") from error
