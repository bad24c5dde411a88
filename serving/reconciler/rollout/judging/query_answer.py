"""The value in an answer of Prometheus' query API. Pure.

Format: https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from clusters.base.errors import KnodelError
from clusters.base.redact import one_line

LONGEST_REASON = 300
"""Characters of what the server says of an error: it repeats the query, which has up to 4096."""


class NoValue(KnodelError):
    """A query has no value now."""


class _Data(msgspec.Struct, rename={"kind": "resultType"}):
    kind: str
    result: msgspec.Raw


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


class _Sample(msgspec.Struct):
    value: tuple[float, str] | None = None  # none in a native histogram


_ANSWER = msgspec.json.Decoder(_Answer)
_SCALAR = msgspec.json.Decoder(tuple[float, str])
_VECTOR = msgspec.json.Decoder(list[_Sample])


def value_in(body: bytes) -> float:
    """The value of a scalar, the largest one of a vector: all of its series are to be at most so. Raises NoValue."""
    try:
        answer = _ANSWER.decode(body)
        if answer.status != "success" or answer.data is None:
            raise NoValue(f"the server refuses the query: {one_line(answer.error, LONGEST_REASON)}")
        numbers = [float(text) for text in _texts(answer.data)]
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise NoValue(f"the server's answer is none of Prometheus' query API: {error}") from error
    known = [number for number in numbers if not math.isnan(number)]
    if not known:
        raise NoValue("the query answers NaN: it divides by nothing" if numbers else "the query answers no series")
    return max(known)


def _texts(data: _Data) -> Sequence[str]:
    """Numbers as they are written. Raises NoValue, DecodeError."""
    if data.kind == "scalar":
        return (_SCALAR.decode(data.result)[1],)
    if data.kind == "vector":
        return [sample.value[1] for sample in _VECTOR.decode(data.result) if sample.value is not None]
    raise NoValue(f"the query answers a {data.kind[:LONGEST_REASON]}: write one that answers a number, as rate() does")
