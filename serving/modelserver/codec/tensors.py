"""Convert between numbers of messages and arrays, and validate types and shapes. Pure.

Nothing is converted silently: types must match exactly, except that models of floats accept FP32 and FP64. Sizes are
checked before memory of that size is allocated. All functions raise InvalidRequest.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np

from serving.engines.base.binary import LENGTH_SIZE, bf16, to_bytes
from serving.engines.base.datatypes import BF16, BYTES, DATATYPES, Datatype, Tensor
from serving.engines.base.engine import TensorSpec
from serving.engines.base.tensors import fits
from serving.modelserver.base.errors import InvalidRequest

__all__ = ["to_bytes"]

_FP32: Final = DATATYPES["FP32"].dtype
MAX_DIMENSIONS: Final = 32
MAX_DIMENSION: Final = (1 << 63) - 1  # of one dimension, which is an int64 in all engines
_JSON_FLOATS: Final = ("FP32", "FP64")  # FP16 and BF16 are sent only as binary data


def check_shape(name: str, shape: Sequence[int]) -> int:
    """Return the number of elements of the shape."""
    if len(shape) > MAX_DIMENSIONS or min(shape, default=0) < 0 or max(shape, default=0) > MAX_DIMENSION:
        raise InvalidRequest(
            f"input {name!r}: shape {_short(shape)} has a negative or huge size, or too many dimensions"
        )
    return math.prod(shape)


def check_against(spec: TensorSpec, datatype: Datatype, shape: Sequence[int]) -> None:
    """Raise InvalidRequest unless the model accepts this type and shape."""
    taken = DATATYPES[spec.datatype]
    if datatype is not taken and not (datatype.is_float and taken.is_float):
        raise InvalidRequest(f"input {spec.name!r} is {datatype.name}: the model expects {taken.name}")
    expected = spec.shape
    if expected is not None and expected != tuple(shape) and not fits(expected, shape):
        raise InvalidRequest(f"input {spec.name!r} has shape {_short(shape)}: the model expects {list(expected)}")


def from_numbers(name: str, datatype: Datatype, shape: Sequence[int], values: list[Any]) -> Tensor:
    """Return an array of flat `values` in row-major order, which have the Python type of `datatype`."""
    count = check_shape(name, shape)
    if len(values) != count:
        raise InvalidRequest(f"input {name!r}: shape {_short(shape)} has {count} elements, data has {len(values)}")
    try:
        if datatype.dtype == _FP32:  # `pack` raises for numbers that do not fit; NumPy would convert them to infinity
            return np.frombuffer(struct.pack(f"<{count}f", *values), dtype=datatype.dtype).reshape(shape)
        if datatype.name == "FP16":
            return narrowed(name, np.array(values, dtype=np.float64), datatype).reshape(shape)
        return np.array(values, dtype=datatype.dtype).reshape(shape)
    except OverflowError as error:
        raise InvalidRequest(f"input {name!r}: data has a number outside the range of {datatype.name}") from error
    except ValueError as error:  # sizes with a product of 0 that are too large for an array
        raise InvalidRequest(f"input {name!r}: shape {_short(shape)} is too large") from error


def narrowed(name: str, array: Tensor, datatype: Datatype) -> Tensor:
    """Return the floats rounded to `datatype`; refuses finite numbers that would become infinite."""
    if array.dtype == datatype.dtype:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        made: Tensor = array.astype(datatype.dtype)
    if made.dtype.itemsize < array.dtype.itemsize and not np.array_equal(np.isinf(made), np.isinf(array)):
        raise InvalidRequest(f"input {name!r}: data has a number outside the range of {datatype.name}")
    return made


def flattened(name: str, shape: Sequence[int], data: list[Any]) -> list[Any]:
    """Return `data`, which is flat or nested by the shape, as a flat list."""
    if not any(isinstance(item, list) for item in data):
        return data
    level, expected = data, 1
    for size, below in zip(shape, [*shape[1:], None], strict=False):  # a scalar has no nesting
        expected *= size
        if len(level) != expected:
            break
        if below is None:
            return level
        if not are_lists(level, below):
            break
        level = list(chain.from_iterable(level))
    raise InvalidRequest(f"input {name!r}: data is neither flat nor nested by its shape {_short(shape)}")


def are_lists(items: list[Any], size: int) -> bool:
    """Return whether each item is a list of `size` elements. Avoids a Python loop, as there may be millions."""
    return set(map(type, items)) <= {list} and set(map(len, items)) <= {size}


def from_bytes(name: str, datatype: Datatype, shape: Sequence[int], content: memoryview) -> Tensor:
    """Return an array of the bytes of the binary tensor extension."""
    count = check_shape(name, shape)
    if datatype.name == BYTES:
        return _shaped(name, _texts(name, count, content), shape)
    if count * datatype.size != len(content):
        raise InvalidRequest(
            f"input {name!r}: shape {_short(shape)} of {datatype.name} has {count * datatype.size} bytes, "
            f"binary_data_size is {len(content)}"
        )
    if datatype.name == BF16:
        return _shaped(name, bf16(content), shape)
    array = np.frombuffer(content, dtype=datatype.dtype)
    if datatype.name == "BOOL" and np.any(array.view(np.uint8) > 1):
        raise InvalidRequest(f"input {name!r}: a BOOL must be a byte 0 or 1")
    return _shaped(name, array if array.flags.aligned else array.copy(), shape)


def _shaped(name: str, array: Tensor, shape: Sequence[int]) -> Tensor:
    try:
        return array.reshape(shape)
    except ValueError as error:  # sizes with a product of 0 that are too large for an array
        raise InvalidRequest(f"input {name!r}: shape {_short(shape)} is too large") from error


def _texts(name: str, count: int, content: memoryview) -> Tensor:
    if count * LENGTH_SIZE > len(content):
        raise InvalidRequest(f"input {name!r}: {count} elements do not fit into {len(content)} bytes")
    array, at = np.empty(count, dtype=object), 0
    for index in range(count):
        begin = at + LENGTH_SIZE
        at = begin + int.from_bytes(content[at:begin], "little")
        if begin > len(content) or at > len(content):
            raise InvalidRequest(f"input {name!r}: element {index} exceeds the data")
        array[index] = bytes(content[begin:at])
    if at != len(content):
        raise InvalidRequest(f"input {name!r}: {len(content) - at} extra bytes after the last element")
    return array


def carries(datatype: Datatype) -> bool:
    """Return whether JSON can express the datatype."""
    return not datatype.is_float or datatype.name in _JSON_FLOATS


def strict(values: list[Any], kind: Any, where: str) -> list[Any]:
    """Return the values, each of which must have exactly the type `kind`."""
    try:
        checked: list[Any] = msgspec.convert(values, kind, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{where}: {error}") from error
    return checked


def _short(shape: Sequence[int]) -> str:
    shown = ", ".join(str(size)[:24] for size in shape[:MAX_DIMENSIONS])
    return f"[{shown}{', …' if len(shape) > MAX_DIMENSIONS else ''}]"
