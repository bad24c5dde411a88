"""Read the subset of Universal Binary JSON (https://ubjson.org/type-reference) that XGBoost writes. Pure.

XGBoost reads past the end of a truncated file, and then crashes or hangs. So only a file that is exactly one value is
accepted. A repeated key is rejected, because two readers may choose different values.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

MAX_DEPTH: Final = 64  # nested containers; models have about ten
_CONSTANTS: Final = {ord("Z"): None, ord("N"): None, ord("T"): True, ord("F"): False}
_NUMBERS: Final = {ord(mark): np.dtype(code) for mark, code in zip("iUIlLdD", (
    "i1", "u1", ">i2", ">i4", ">i8", ">f4", ">f8"), strict=True)}  # fmt: skip
_INTEGERS: Final = {ord(mark): struct.Struct(f">{code}") for mark, code in zip("iUIlL", "bBhiq", strict=True)}
_FLOATS: Final = {ord(mark): struct.Struct(f">{code}") for mark, code in zip("dD", "fd", strict=True)}
_STRINGS: Final = frozenset(b"SH")
_CHARACTER, _ARRAY, _ARRAY_END, _OBJECT, _OBJECT_END, _TYPE, _COUNT = b"C[]{}$#"
_DAMAGED: Final = "the file is damaged"
_TRUNCATED: Final = "the file is truncated"


def begins(content: bytes) -> bool:
    """Return whether a file begins with an object in this format, which no JSON does."""
    return len(content) > 1 and content[0] == _OBJECT and content[1] in (*_INTEGERS, _TYPE, _COUNT)


def read(content: bytes) -> Any:
    """Return the value, with typed arrays as NumPy arrays. Raises ValueError unless the file is exactly one value."""
    try:
        value, end = _value(content, 0, 0)
    except (IndexError, struct.error) as error:
        raise ValueError(_TRUNCATED) from error
    if end != len(content):
        raise ValueError("the file has data after its end")
    return value


def _value(content: bytes, at: int, depth: int) -> tuple[Any, int]:
    """Return the value at position `at`, and the position after it."""
    marker = content[at]
    at += 1
    if marker in _CONSTANTS:
        return _CONSTANTS[marker], at
    number = _INTEGERS.get(marker) or _FLOATS.get(marker)
    if number is not None:
        return number.unpack_from(content, at)[0], at + number.size
    if marker in _STRINGS:
        return _string(content, at)
    if marker == _CHARACTER:
        return chr(content[at]), at + 1
    if depth > MAX_DEPTH or marker not in (_ARRAY, _OBJECT):
        raise ValueError(_DAMAGED)
    return _array(content, at, depth) if marker == _ARRAY else _object(content, at, depth)


def _array(content: bytes, at: int, depth: int) -> tuple[Any, int]:
    if content[at] == _TYPE:
        return _numbers(content, at + 1)
    count, at = _count(content, at)
    values: list[Any] = []
    while _has_more(content, at, len(values), count, _ARRAY_END):
        value, at = _value(content, at, depth + 1)
        values.append(value)
    return values, at if count is not None else at + 1


def _numbers(content: bytes, at: int) -> tuple[Any, int]:
    dtype = _NUMBERS.get(content[at])
    if dtype is None or content[at + 1] != _COUNT:
        raise ValueError(_DAMAGED)
    count, at = _integer(content, at + 2)
    end = at + count * dtype.itemsize
    if end > len(content):
        raise ValueError(_TRUNCATED)
    return np.frombuffer(content, dtype, count, at) if count else np.empty(0, dtype), end


def _object(content: bytes, at: int, depth: int) -> tuple[dict[str, Any], int]:
    count, at = _count(content, at)
    members: dict[str, Any] = {}
    while _has_more(content, at, len(members), count, _OBJECT_END):
        name, at = _string(content, at)
        if name in members:
            raise ValueError(f"the file is damaged: {name[:20]!r} appears twice")
        members[name], at = _value(content, at, depth + 1)
    return members, at if count is not None else at + 1


def _count(content: bytes, at: int) -> tuple[int | None, int]:
    """Return the number of members, None when an end mark follows them, and the position after it."""
    return _integer(content, at + 1) if content[at] == _COUNT else (None, at)


def _has_more(content: bytes, at: int, done: int, count: int | None, end: int) -> bool:
    return content[at] != end if count is None else done < count


def _string(content: bytes, at: int) -> tuple[str, int]:
    length, at = _integer(content, at)
    if at + length > len(content):
        raise ValueError(_TRUNCATED)
    return content[at : at + length].decode(), at + length


def _integer(content: bytes, at: int) -> tuple[int, int]:
    form = _INTEGERS.get(content[at])
    if form is None:
        raise ValueError(_DAMAGED)
    (value,) = form.unpack_from(content, at + 1)
    if value < 0:
        raise ValueError(_DAMAGED)
    return value, at + 1 + form.size
