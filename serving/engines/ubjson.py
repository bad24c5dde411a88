"""Whether a file in Universal Binary JSON (https://ubjson.org/type-reference) is whole. Pure.

Of a file that is cut off XGBoost reads what lies behind it in memory, and the process ends or hangs.
"""

from __future__ import annotations

import struct
from typing import Final

DEEPEST: Final = 64  # containers within containers; models have about ten
_SIZES: Final = {
    ord(mark): size for mark, size in zip("ZNTFiUCIldLD", (0, 0, 0, 0, 1, 1, 1, 2, 4, 4, 8, 8), strict=True)
}
"""Bytes of a value behind its marker."""
_INTEGERS: Final = {ord(mark): struct.Struct(f">{code}") for mark, code in zip("iUIlL", "bBhiq", strict=True)}
_STRINGS: Final = frozenset(b"SH")
_ARRAY, _ARRAY_END, _OBJECT, _OBJECT_END, _TYPE, _COUNT = b"[]{}$#"


def begins(content: bytes) -> bool:
    """Whether a file begins as an object in this format does, and as no JSON does."""
    return len(content) > 1 and content[0] == _OBJECT and content[1] in (*_INTEGERS, _TYPE, _COUNT)


def check(content: bytes) -> None:
    """Raises ValueError for a file that is not exactly one value."""
    try:
        end = _value(content, 0, 0)
    except (IndexError, struct.error) as error:
        raise ValueError("the file is cut off") from error
    if end != len(content):
        raise ValueError("the file is cut off" if end > len(content) else "the file goes on behind its end")


def _value(content: bytes, at: int, depth: int) -> int:
    """Where the value that begins at `at` ends."""
    marker = content[at]
    at += 1
    if marker in _SIZES:
        return at + _SIZES[marker]
    if marker in _STRINGS:
        return _string(content, at)
    if marker not in (_ARRAY, _OBJECT) or depth > DEEPEST:
        raise ValueError("the file is damaged")
    return _container(content, at, depth, _OBJECT_END if marker == _OBJECT else _ARRAY_END)


def _container(content: bytes, at: int, depth: int, end: int) -> int:
    if content[at] == _TYPE:
        kind, at = content[at + 1], at + 2
        if end != _ARRAY_END or kind not in _SIZES or content[at] != _COUNT:
            raise ValueError("the file is damaged")
        count, at = _integer(content, at + 1)
        return at + count * _SIZES[kind]
    count = -1
    if content[at] == _COUNT:
        count, at = _integer(content, at + 1)
    while count != 0 and (count > 0 or content[at] != end):
        if end == _OBJECT_END:
            at = _string(content, at)
        at = _value(content, at, depth + 1)
        count -= 1
    return at if count == 0 else at + 1


def _string(content: bytes, at: int) -> int:
    length, at = _integer(content, at)
    return at + length


def _integer(content: bytes, at: int) -> tuple[int, int]:
    form = _INTEGERS.get(content[at])
    if form is None:
        raise ValueError("the file is damaged")
    (value,) = form.unpack_from(content, at + 1)
    if value < 0:
        raise ValueError("the file is damaged")
    return value, at + 1 + form.size
