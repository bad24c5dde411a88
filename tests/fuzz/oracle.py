"""What a request says, read by others than the server: Python's own JSON, NumPy, base64. Pure.

Held against what the server decodes, it shows a value that was converted without a word, or invented.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from serving.engines.base.datatypes import BF16, BYTES, DATATYPES, Tensor
from serving.engines.base.engine import ANY, TensorSpec

LENGTH = 4  # bytes in front of each element of BYTES in binary form


class Ambiguous(Exception):
    """An object has a key twice, of which readers take this value or that: nothing may be made of it."""


def read_json(content: bytes) -> Any:
    """The value of a JSON text in UTF-8. Raises ValueError for what is none, Ambiguous."""
    return json.loads(content.decode(), object_pairs_hook=_once, parse_constant=_no_constant)


def shape_of(value: Any) -> tuple[int, ...]:
    """How lists nest, by the first of each depth."""
    sizes = []
    while isinstance(value, list):
        sizes.append(len(value))
        value = value[0] if value else None
    return tuple(sizes)


def leaves(value: Any) -> Iterator[Any]:
    """What nested lists hold, in row-major order."""
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def check_tensor(spec: TensorSpec, tensor: Tensor, shape: Sequence[int]) -> None:
    """Raise AssertionError unless the tensor is of the model's type and of this shape, and the model takes that."""
    assert tensor.dtype == DATATYPES[spec.datatype].dtype
    assert tensor.shape == tuple(shape)
    if spec.shape is not None:
        assert len(shape) == len(spec.shape)
        assert all(wanted in (ANY, given) for wanted, given in zip(spec.shape, shape, strict=True))


def check_values(spec: TensorSpec, tensor: Tensor, values: Iterable[Any]) -> None:
    """Raise AssertionError unless these values of JSON, or of protobuf, are what the tensor holds, one by one."""
    for given, got in zip(values, tensor.ravel(), strict=True):
        assert _is_same(spec.datatype, tensor.dtype, given, got), (given, got)


def check_bytes(sent_as: str, tensor: Tensor, content: bytes) -> None:
    """Raise AssertionError unless the tensor holds what `content`, elements of type `sent_as`, says."""
    if sent_as == BYTES:
        assert [_as_bytes(item) for item in tensor.ravel()] == list(_texts(content))
        return
    if sent_as == BF16:
        given: Tensor = (np.frombuffer(content, "<u2").astype("<u4") << 16).view("<f4")
    else:
        given = np.frombuffer(content, DATATYPES[sent_as].dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = given.astype(tensor.dtype)
    is_float = tensor.dtype.kind == "f"
    np.testing.assert_array_equal(tensor.ravel(), rounded)
    assert not is_float or np.array_equal(np.isinf(rounded), np.isinf(given))


def _is_same(datatype: str, dtype: np.dtype[Any], given: Any, got: Any) -> bool:
    if datatype == BYTES:
        return isinstance(given, (str, bytes, dict)) and _as_bytes(given) == _as_bytes(got)
    if datatype == "BOOL":
        return isinstance(given, bool) and given == bool(got)
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        return False
    if dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = np.float64(given).astype(dtype)
        return bool(wanted == got or (np.isnan(wanted) and np.isnan(got)))
    return isinstance(given, int) and given == int(got)


def _as_bytes(item: Any) -> bytes:
    if isinstance(item, dict):
        (encoded,) = item.values()
        return base64.b64decode(encoded, validate=True)
    return item if isinstance(item, bytes) else str(item).encode()


def _texts(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        (size,) = struct.unpack_from("<I", content, at)
        yield content[at + LENGTH : at + LENGTH + size]
        at += LENGTH + size


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise Ambiguous
    return made


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")
