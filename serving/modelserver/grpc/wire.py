"""Parse large requests without copying their tensors. Pure.

protobuf copies every `bytes` field twice, and for small fields needs up to thirty times their size in memory. So views
of the raw tensors of a large request are taken from the message, and the size of the rest, which protobuf parses, is
bounded. Wire format: https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from clusters.base.sizes import format_size
from serving.modelserver.base.errors import ContentTooLarge, InvalidRequest

MAX_FIELDS: Final = 4096  # of a large request: inputs, outputs and parameters together
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; groups exist only in proto2
_FIXED_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_TYPE_BITS: Final = 3
_TYPE_MASK: Final = 7
_MAX_VARINT_SIZE: Final = 10  # bytes
_MORE: Final = 0x80  # bit of a varint's byte: another byte follows
_LOW: Final = 0x7F


def split(message: bytes, field: int, most: int) -> tuple[bytes, list[memoryview]]:
    """Return the message without its bytes fields of number `field`, and views of these fields.

    Raises InvalidRequest, and ContentTooLarge when the rest of the message has more than `most` bytes.
    """
    view, found, rest = memoryview(message), list[memoryview](), list[memoryview]()
    raw = field << _TYPE_BITS | _BYTES
    at = fields = 0
    while at < len(view):
        fields += 1
        if fields > MAX_FIELDS:
            raise ContentTooLarge(f"a request has at most {MAX_FIELDS} inputs, outputs and parameters")
        key, begin = _varint(view, at)
        content, end = _field(view, key & _TYPE_MASK, begin)
        if key == raw:
            found.append(view[content:end])
        else:
            rest.append(view[at:end])
        at = end
    if sum(map(len, rest)) > most:
        raise ContentTooLarge(
            f"a request has at most {format_size(most)} beside raw_input_contents: send tensors there"
        )
    return b"".join(rest), found


def text_of(message: bytes, field: int) -> str:
    """Return the first field of number `field` as text; "" without one. Raises InvalidRequest, ContentTooLarge."""
    view = memoryview(message)
    at = fields = 0
    while at < len(view):
        fields += 1
        if fields > MAX_FIELDS:
            raise ContentTooLarge(
                f"the model name is not among the first {MAX_FIELDS} fields of the request: send it first"
            )
        key, begin = _varint(view, at)
        content, at = _field(view, key & _TYPE_MASK, begin)
        if key == field << _TYPE_BITS | _BYTES:
            return bytes(view[content:at]).decode("utf-8", "replace")
    return ""


def fields_from(message: bytes, at: int, field: int) -> list[memoryview] | None:
    """Return the bytes fields `field` from `at` to the end; None when there are none, or also other fields."""
    view, key, found = memoryview(message), field << _TYPE_BITS | _BYTES, list[memoryview]()
    while at < len(message):
        if message[at] != key:
            return None
        try:
            size, begin = _varint(view, at + 1)
        except InvalidRequest:
            return None
        at = begin + size
        found.append(view[begin:at])
    return found if found and at == len(message) else None


def field_size(content: bytes | memoryview) -> int:
    """Return the size of a bytes field with its key and length. Its number must be below 16."""
    return 1 + len(_to_varint(len(content))) + len(content)


def joined(head: bytes, field: int, contents: Iterable[bytes]) -> bytes:
    """Return the message `head` with bytes fields of number `field` appended."""
    parts = [head]
    for content in contents:
        parts += (_to_varint(field << _TYPE_BITS | _BYTES), _to_varint(len(content)), content)
    return b"".join(parts)


def _field(view: memoryview, kind: int, begin: int) -> tuple[int, int]:
    """Return where the content of a field begins and ends; its key ends at `begin`. Raises InvalidRequest."""
    if kind == _BYTES:
        size, content = _varint(view, begin)
        end = content + size
    elif kind == _VARINT:
        content, end = begin, _varint(view, begin)[1]
    elif kind in _FIXED_SIZES:
        content, end = begin, begin + _FIXED_SIZES[kind]
    else:
        raise InvalidRequest("the message is not a ModelInferRequest")
    if end > len(view):
        raise InvalidRequest("the message is not a ModelInferRequest: it ends within a field")
    return content, end


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """Return the number at `at` and where it ends. Raises InvalidRequest."""
    value = shift = 0
    for end, byte in enumerate(view[at : at + _MAX_VARINT_SIZE], at + 1):
        value |= (byte & _LOW) << shift
        if byte < _MORE:
            return value, end
        shift += 7
    raise InvalidRequest("the message is not a ModelInferRequest: it contains an unterminated varint")


def _to_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= _MORE:
        encoded.append(value & _LOW | _MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
