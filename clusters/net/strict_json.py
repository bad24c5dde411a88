"""A strict JSON decoder for untrusted input, which refuses everything that parsers interpret differently. Pure.

It refuses duplicate names (a checker and its target may use different ones), NaN and infinities, integers beyond 64
bits, lone surrogates, excessive nesting, and bytes that are not UTF-8 (RFC 8259 §4, RFC 7493 §2).

msgspec decodes simple input in a third of the time, but drops duplicate names silently. That is detected by encoding
the value again: without escapes, each string has two quotes, so a dropped name changes the number of quotes.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection
from typing import Any, Final

from clusters.base.errors import KnodelError, shown_name

DEEPEST: Final = 64
"""Levels of nested arrays and objects. Metrics have three; each level costs every parser a stack frame."""
MOST_VALUES: Final = 100_000
"""Values in one request. The smallest have two bytes and take up to 200 of memory. A full batch has some 15 000."""
_LARGEST: Final = 2**64
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class BadJson(KnodelError):
    """The body is not JSON, or JSON that parsers interpret differently."""


class TooManyValues(BadJson):
    """The JSON is valid but has more than `MOST_VALUES` values."""


def decode(body: bytes) -> Any:
    """Return the JSON value of a body. Raises BadJson, TooManyValues."""
    try:
        value = _of_plain(body)
        if value is None:
            value = _of_any(body)
        if body.count(b"[") + body.count(b"{") > DEEPEST:
            _check_depth(value)
        if len(body) > 2 * MOST_VALUES:  # each has at least two bytes, with its separator
            _check_number(value)
    except RecursionError:
        raise BadJson(f"the JSON is nested more than {DEEPEST} levels deep") from None
    except json.JSONDecodeError as error:
        raise BadJson(f"the body is not JSON: {error.msg} at character {error.pos}") from error
    except UnicodeError as error:
        raise BadJson(f"the JSON is not UTF-8: {error.reason}") from error  # type: ignore[attr-defined]
    except ValueError as error:
        raise BadJson("the JSON has a number with thousands of digits") from error
    return value


def _of_plain(body: bytes) -> Any:
    """Return the value of simple JSON that is surely valid except for its depth; else None."""
    if b"\\" in body:
        return None
    try:
        import msgspec  # servers have it; the command also runs without it
    except ModuleNotFoundError:
        return None
    try:
        value = msgspec.json.decode(body)
        written = msgspec.json.encode(value)
        msgspec.msgpack.encode(value)  # raises for an integer of more than 64 bits
    except (msgspec.MsgspecError, ValueError, OverflowError):
        return None
    return value if written.count(b'"') == body.count(b'"') else None


def _of_any(body: bytes) -> Any:
    """Return the value of any valid JSON. Raises BadJson, ValueError, RecursionError."""
    value = _DECODER.decode(body.decode())
    if _SURROGATE.search(body):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise BadJson(f"the JSON has the name '{shown_name(twice)}' twice in one object")
    return value


def _integer(text: str) -> int:
    value = int(text)
    if not -_LARGEST // 2 <= value < _LARGEST:
        raise BadJson("the JSON has an integer of more than 64 bits: send it as a string")
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadJson("the JSON has a number beyond the range of a 64-bit float")
    return value


def _constant(text: str) -> Any:
    raise BadJson(f"{text} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)


def _check_depth(value: Any) -> None:
    level: list[Collection[Any]] = [[value]]
    for _ in range(DEEPEST + 1):
        level = [
            one.values() if type(one) is dict else one
            for outer in level
            for one in outer
            if type(one) is dict or type(one) is list
        ]
        if not level:
            return
    raise RecursionError


def _check_number(value: Any) -> None:
    waiting: list[list[Any] | dict[str, Any]] = [[value]]
    seen = 0
    while waiting:
        one = waiting.pop()
        inner: Collection[Any] = one.values() if isinstance(one, dict) else one
        seen += len(inner)
        if seen > MOST_VALUES:
            raise TooManyValues(
                f"the JSON has more than {MOST_VALUES} values: send fewer at once, or a URI of the data"
            )
        waiting.extend(one for one in inner if isinstance(one, (list, dict)))
