"""A large request taken apart without a copy of its tensors. Pure.

protobuf copies every `bytes` field twice and needs up to thirty times the bytes of small ones in memory. So the raw
tensors of a large request are cut out where they lie, and what is left for protobuf is bounded. Wire format:
https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from clusters.base.sizes import format_size
from serving.modelserver.base.errors import BadRequest, TooLarge

MOST_FIELDS: Final = 4096  # of a large request: inputs, outputs and parameters together
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; groups are of proto2
_FIXED_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_TYPE_BITS: Final = 3
_TYPE_MASK: Final = 7
_LONGEST_VARINT: Final = 10  # bytes
_MORE: Final = 0x80  # of a varint's byte: another one follows
_LOW: Final = 0x7F


def split(message: bytes, field: int, most: int) -> tuple[bytes, list[memoryview]]:
    """The message without its fields of bytes of number `field`, and these. Raises BadRequest, TooLarge.

    `most` is how many bytes the former may have.
    """
    view, found, rest = memoryview(message), list[memoryview](), list[memoryview]()
    raw = field << _TYPE_BITS | _BYTES
    at = fields = 0
    while at < len(view):
        fields += 1
        if fields > MOST_FIELDS:
            raise TooLarge(f"a request has at most {MOST_FIELDS} inputs, outputs and parameters")
        key, begin = _varint(view, at)
        content, end = _field(view, key & _TYPE_MASK, begin)
        if key == raw:
            found.append(view[content:end])
        else:
            rest.append(view[at:end])
        at = end
    if sum(map(len, rest)) > most:
        raise TooLarge(f"a request has at most {format_size(most)} beside raw_input_contents: send tensors there")
    return b"".join(rest), found


def text_of(message: bytes, field: int) -> str:
    """The first field of number `field` in the message, as text; "" without one. Raises BadRequest, TooLarge."""
    view = memoryview(message)
    at = fields = 0
    while at < len(view):
        fields += 1
        if fields > MOST_FIELDS:
            raise TooLarge(f"the first {MOST_FIELDS} fields of a request name its model")
        key, begin = _varint(view, at)
        content, at = _field(view, key & _TYPE_MASK, begin)
        if key == field << _TYPE_BITS | _BYTES:
            return bytes(view[content:at]).decode("utf-8", "replace")
    return ""


def fields_from(message: bytes, at: int, field: int) -> list[memoryview] | None:
    """The fields of bytes of number `field` that are all that follows; None when something else does, or nothing."""
    view, key, found = memoryview(message), field << _TYPE_BITS | _BYTES, list[memoryview]()
    while at < len(message):
        if message[at] != key:
            return None
        try:
            size, begin = _varint(view, at + 1)
        except BadRequest:
            return None
        at = begin + size
        found.append(view[begin:at])
    return found if found and at == len(message) else None


def field_size(content: bytes | memoryview) -> int:
    """Of a field of bytes, whose number is below 16, with its key and length."""
    return 1 + len(_to_varint(len(content))) + len(content)


def joined(head: bytes, field: int, contents: Iterable[bytes]) -> bytes:
    """`head`, a message, with fields of bytes behind it."""
    parts = [head]
    for content in contents:
        parts += (_to_varint(field << _TYPE_BITS | _BYTES), _to_varint(len(content)), content)
    return b"".join(parts)


def _field(view: memoryview, kind: int, begin: int) -> tuple[int, int]:
    """Where the content of a field begins and ends, whose key ends at `begin`."""
    if kind == _BYTES:
        size, content = _varint(view, begin)
        end = content + size
    elif kind == _VARINT:
        content, end = begin, _varint(view, begin)[1]
    elif kind in _FIXED_SIZES:
        content, end = begin, begin + _FIXED_SIZES[kind]
    else:
        raise BadRequest("the message is no ModelInferRequest")
    if end > len(view):
        raise BadRequest("the message is no ModelInferRequest: it ends within a field")
    return content, end


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """The number, and where it ends."""
    value = shift = 0
    for end, byte in enumerate(view[at : at + _LONGEST_VARINT], at + 1):
        value |= (byte & _LOW) << shift
        if byte < _MORE:
            return value, end
        shift += 7
    raise BadRequest("the message is no ModelInferRequest: a number in it does not end")


def _to_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= _MORE:
        encoded.append(value & _LOW | _MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
