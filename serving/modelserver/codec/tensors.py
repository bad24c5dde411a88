"""Between the numbers of a message and arrays: every rule that says what is refused. Pure.

Nothing is converted silently: types are exact, but that FP32 and FP64 are both taken where the model takes floats.
Sizes are checked before anything of that size is allocated. All functions raise BadRequest.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np

from serving.engines.base.datatypes import BF16, BYTES, DATATYPES, Datatype, Tensor
from serving.engines.base.engine import TensorSpec
from serving.engines.base.shapes import fits
from serving.modelserver.base.errors import BadRequest

MOST_DIMENSIONS: Final = 32
LARGEST_SIZE: Final = (1 << 63) - 1  # of one dimension: an int64 in every engine
_LENGTH_SIZE: Final = 4  # bytes in front of each element of BYTES in binary form
_JSON_FLOATS: Final = ("FP32", "FP64")  # FP16 and BF16 only as binary data
_FP32: Final = DATATYPES["FP32"].dtype
_HALF: Final = 16  # bits of an FP32 that BF16 has


def check_shape(name: str, shape: Sequence[int]) -> int:
    """The number of elements."""
    if len(shape) > MOST_DIMENSIONS or min(shape, default=0) < 0 or max(shape, default=0) > LARGEST_SIZE:
        raise BadRequest(f"input {name!r}: shape {_short(shape)} has a negative or huge size, or too many dimensions")
    return math.prod(shape)


def check_against(spec: TensorSpec, datatype: Datatype, shape: Sequence[int]) -> None:
    """Whether the model takes a tensor of this type and shape."""
    taken = DATATYPES[spec.datatype]
    if datatype is not taken and not (datatype.is_float and taken.is_float):
        raise BadRequest(f"input {spec.name!r} is {datatype.name}: the model takes {taken.name}")
    expected = spec.shape
    if expected is not None and expected != tuple(shape) and not fits(expected, shape):
        raise BadRequest(f"input {spec.name!r} has shape {_short(shape)}: the model takes {list(expected)}")


def from_numbers(name: str, datatype: Datatype, shape: Sequence[int], values: list[Any]) -> Tensor:
    """An array of values that have the type's own kind in Python, flat in row-major order."""
    count = check_shape(name, shape)
    if len(values) != count:
        raise BadRequest(f"input {name!r}: shape {_short(shape)} has {count} elements, data has {len(values)}")
    try:
        if datatype.dtype == _FP32:  # `pack` refuses what does not fit, where NumPy makes infinity
            return np.frombuffer(struct.pack(f"<{count}f", *values), dtype=datatype.dtype).reshape(shape)
        if datatype.name == "FP16":
            return narrowed(name, np.array(values, dtype=np.float64), datatype).reshape(shape)
        return np.array(values, dtype=datatype.dtype).reshape(shape)
    except OverflowError as error:
        raise BadRequest(f"input {name!r}: data has a number beyond {datatype.name}") from error
    except ValueError as error:  # sizes whose product is 0, but too large for an array
        raise BadRequest(f"input {name!r}: shape {_short(shape)} is too large") from error


def narrowed(name: str, array: Tensor, datatype: Datatype) -> Tensor:
    """The floats as `datatype`, rounded; a finite number that would become infinite is refused."""
    if array.dtype == datatype.dtype:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        made: Tensor = array.astype(datatype.dtype)
    if made.dtype.itemsize < array.dtype.itemsize and not np.array_equal(np.isinf(made), np.isinf(array)):
        raise BadRequest(f"input {name!r}: data has a number beyond {datatype.name}")
    return made


def flattened(name: str, shape: Sequence[int], data: list[Any]) -> list[Any]:
    """Data that nests as the shape does, as one list; data without nesting as it is."""
    if not any(isinstance(item, list) for item in data):
        return data
    level, expected = data, 1
    for size, below in zip(shape, [*shape[1:], None], strict=False):  # of a scalar, nothing nests
        expected *= size
        if len(level) != expected:
            break
        if below is None:
            return level
        if not are_lists(level, below):
            break
        level = list(chain.from_iterable(level))
    raise BadRequest(f"input {name!r}: data is neither flat nor nested as its shape {_short(shape)} says")


def are_lists(items: list[Any], size: int) -> bool:
    """Whether each is a list of `size` elements; without a loop of our own, for there may be millions."""
    return set(map(type, items)) <= {list} and set(map(len, items)) <= {size}


def from_bytes(name: str, datatype: Datatype, shape: Sequence[int], content: memoryview) -> Tensor:
    """An array of the binary tensor extension's bytes."""
    count = check_shape(name, shape)
    if datatype.name == BYTES:
        return _shaped(name, _texts(name, count, content), shape)
    if count * datatype.size != len(content):
        raise BadRequest(
            f"input {name!r}: shape {_short(shape)} of {datatype.name} has {count * datatype.size} bytes, "
            f"binary_data_size is {len(content)}"
        )
    if datatype.name == BF16:
        return _shaped(name, (np.frombuffer(content, "<u2").astype("<u4") << _HALF).view(_FP32), shape)
    array = np.frombuffer(content, dtype=datatype.dtype)
    if datatype.name == "BOOL" and np.any(array.view(np.uint8) > 1):
        raise BadRequest(f"input {name!r}: a BOOL is a byte 0 or 1")
    return _shaped(name, array if array.flags.aligned else array.copy(), shape)


def _shaped(name: str, array: Tensor, shape: Sequence[int]) -> Tensor:
    try:
        return array.reshape(shape)
    except ValueError as error:  # sizes whose product is 0, but too large for an array
        raise BadRequest(f"input {name!r}: shape {_short(shape)} is too large") from error


def _texts(name: str, count: int, content: memoryview) -> Tensor:
    if count * _LENGTH_SIZE > len(content):
        raise BadRequest(f"input {name!r}: {count} elements do not fit into {len(content)} bytes")
    array, at = np.empty(count, dtype=object), 0
    for index in range(count):
        begin = at + _LENGTH_SIZE
        at = begin + int.from_bytes(content[at:begin], "little")
        if begin > len(content) or at > len(content):
            raise BadRequest(f"input {name!r}: element {index} ends behind the data")
        array[index] = bytes(content[begin:at])
    if at != len(content):
        raise BadRequest(f"input {name!r}: {len(content) - at} bytes are left over behind the last element")
    return array


def to_bytes(tensor: Tensor, datatype: Datatype) -> bytes:
    """As the binary tensor extension wants it; BF16 is rounded to the nearest."""
    if datatype.name == BF16:
        return _to_bf16(tensor)
    if datatype.name != BYTES:
        return np.ascontiguousarray(tensor, dtype=datatype.dtype).tobytes()
    texts = (item if isinstance(item, bytes) else str(item).encode() for item in tensor.ravel())
    return b"".join(len(text).to_bytes(_LENGTH_SIZE, "little") + text for text in texts)


def _to_bf16(tensor: Tensor) -> bytes:
    """Ties go to the even neighbour; rounding must not carry a NaN into infinity."""
    values = np.ascontiguousarray(tensor, dtype=_FP32)
    bits = values.view("<u4").astype("<u8")
    rounded = (bits + 0x7FFF + (bits >> _HALF & 1)) >> _HALF
    quiet = bits >> _HALF | 0x40
    return np.where(np.isnan(values), quiet, rounded).astype("<u2").tobytes()


def carries(datatype: Datatype) -> bool:
    """Whether JSON can carry the type."""
    return not datatype.is_float or datatype.name in _JSON_FLOATS


def strict(values: list[Any], kind: Any, where: str) -> list[Any]:
    """The values, each of them exactly of type `kind`."""
    try:
        checked: list[Any] = msgspec.convert(values, kind, strict=True)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{where}: {error}") from error
    return checked


def _short(shape: Sequence[int]) -> str:
    shown = ", ".join(str(size)[:24] for size in shape[:MOST_DIMENSIONS])
    return f"[{shown}{', …' if len(shape) > MOST_DIMENSIONS else ''}]"
