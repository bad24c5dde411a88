"""Convert between arrays and JSON values, which are flat or nested by the shape. Pure."""

from __future__ import annotations

import base64
import binascii
import math
from itertools import chain
from typing import Any, Final

import numpy as np

from serving.engines.base.datatypes import BYTES, DATATYPES, Datatype, Tensor, datatype_of
from serving.engines.base.engine import TensorSpec
from serving.modelserver.base.errors import InvalidRequest, ModelFailed
from serving.modelserver.codec import tensors
from serving.modelserver.codec.messages import element_type

BASE64: Final = "b64"
"""Key of a JSON object with bytes in base64 (TensorFlow Serving, "Encoding binary values")."""
_MAX_PYTHON_SUM: Final = 64  # numbers; up to this count a sum in Python is faster than NumPy


def to_flat(name: str, datatype: Datatype, tensor: Tensor) -> list[Any]:
    """Return the elements of an output in row-major order.

    Raises InvalidRequest for a datatype, ModelFailed for a value that JSON cannot express.
    """
    if not tensors.carries(datatype):
        raise InvalidRequest(
            f"output {name!r} is {datatype.name}, which JSON cannot express: request it as binary data"
        )
    values: list[Any] = tensor.ravel().tolist()
    _check_finite(name, tensor, values, "request it as binary data")
    if datatype.name == BYTES:
        return [_text(name, value, "request it as binary data") for value in values]
    return values


def to_nested(name: str, tensor: Tensor) -> Any:
    """Return an output as lists nested by its shape, for protocols without datatypes. Raises ModelFailed."""
    remedy = "request it over /v2 as binary data"
    _check_finite(name, tensor, None, remedy)
    if datatype_of(tensor).name != BYTES:
        return tensor.tolist()
    texts = np.empty(tensor.size, dtype=object)
    texts[:] = [_text(name, value, remedy) for value in tensor.ravel().tolist()]
    return texts.reshape(tensor.shape).tolist()


def from_nested(spec: TensorSpec, value: Any, least_rank: int = 0) -> Tensor:
    """Return the input in the nested `value`, whose elements must have exactly the model's type. Raises InvalidRequest.

    If its rank is less than `least_rank`, dimensions of size 1 are added in front.
    """
    shape, flat = _unnested(spec.name, value)
    shape = [1] * (least_rank - len(shape)) + shape
    datatype = DATATYPES[spec.datatype]
    tensors.check_against(spec, datatype, shape)
    if datatype.name == BYTES:
        flat = [_from_base64(spec.name, item) if isinstance(item, dict) else item for item in flat]
        tensors.strict([item for item in flat if not isinstance(item, bytes)], list[str], f"input {spec.name!r}")
    else:
        flat = tensors.strict(flat, element_type(spec.datatype), f"input {spec.name!r}")
    return tensors.from_numbers(spec.name, datatype, shape, flat)


def _unnested(name: str, value: Any) -> tuple[list[int], list[Any]]:
    """Return the shape of nested lists, and their elements in row-major order."""
    shape: list[int] = []
    level = [value]
    while level and isinstance(level[0], list):
        size = len(level[0])
        if len(shape) == tensors.MAX_DIMENSIONS or not tensors.are_lists(level, size):
            raise InvalidRequest(f"input {name!r} has lists of different lengths at one level, or too many levels")
        shape.append(size)
        level = list(chain.from_iterable(level))
    return shape, level


def _check_finite(name: str, tensor: Tensor, values: list[float] | None, remedy: str) -> None:
    """Raise ModelFailed for NaN or infinity. `values` are the elements, if known: a short sum is faster than NumPy."""
    if tensor.dtype.kind != "f":
        return
    if values is not None and len(values) <= _MAX_PYTHON_SUM and math.isfinite(sum(values)):
        return
    if not np.isfinite(tensor).all():
        raise ModelFailed(f"output {name!r} has NaN or infinity, which JSON cannot express: {remedy}")


def _text(name: str, value: Any, remedy: str) -> str:
    if isinstance(value, str):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        raise ModelFailed(f"output {name!r} is not UTF-8, which JSON requires: {remedy}") from error


def _from_base64(name: str, item: dict[str, Any]) -> bytes:
    encoded = item.get(BASE64)
    if len(item) != 1 or not isinstance(encoded, str):
        raise InvalidRequest(f'input {name!r} has an element that is neither a string nor {{"{BASE64}": "BASE64"}}')
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"input {name!r} has an element that is not valid base64") from error
