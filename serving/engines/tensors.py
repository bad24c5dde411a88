"""Making what a request carries into what a model takes (pure): datatypes, shapes, and nothing converted silently.

The one conversion is between FP32 and FP64: models exported with the other one are common, and clients cannot know.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from serving.engines.base import Tensor, TensorSpec
from serving.engines.errors import BadInput

DATATYPES: Final = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(object),
}
"""The datatypes of the Open Inference Protocol v2, as numpy holds them."""

_FLOATS: Final = (DATATYPES["FP32"], DATATYPES["FP64"])


def fit(spec: TensorSpec, given: Tensor) -> Tensor:
    """`given` as the model takes it. Raises BadInput for another datatype, rank or size, or text that is not UTF-8."""
    _check_shape(spec, given.shape)
    if spec.datatype == "BYTES":
        return _as_text(spec, given)
    expected = DATATYPES[spec.datatype]
    if given.dtype == expected:
        return given
    if expected in _FLOATS and given.dtype in _FLOATS:
        return _as_float(spec, given, expected)
    raise BadInput(f"input {spec.name!r} has datatype {_datatype(given)}, and the model takes {spec.datatype}")


def _check_shape(spec: TensorSpec, shape: tuple[int, ...]) -> None:
    if not spec.shape:  # a scalar, or the model does not say: the engine sees
        return
    if len(shape) == len(spec.shape) and all(size in (-1, is_) for size, is_ in zip(spec.shape, shape, strict=True)):
        return
    raise BadInput(
        f"input {spec.name!r} has shape {list(shape)}, and the model takes {list(spec.shape)} (-1: any size)"
    )


def _as_float(spec: TensorSpec, given: NDArray[Any], expected: np.dtype[Any]) -> Tensor:
    with np.errstate(over="ignore"):
        result = given.astype(expected)
    if np.any(np.isinf(result) & ~np.isinf(given)):
        raise BadInput(f"input {spec.name!r} has a value too large for {spec.datatype}, which the model takes")
    return result


def _as_text(spec: TensorSpec, given: Tensor) -> Tensor:
    if given.dtype.kind not in "OSU":
        raise BadInput(f"input {spec.name!r} has datatype {_datatype(given)}, and the model takes BYTES")
    result = np.empty(given.shape, dtype=object)
    result.flat = [_text(spec, item) for item in given.flat]
    return result


def _text(spec: TensorSpec, item: object) -> str:
    if isinstance(item, str):
        return item
    if not isinstance(item, bytes):
        raise BadInput(f"input {spec.name!r} has an element of type {type(item).__name__}, and the model takes text")
    try:
        return item.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"input {spec.name!r} has an element that is not UTF-8 text, which the model takes") from error


def _datatype(given: Tensor) -> str:
    return next((name for name, dtype in DATATYPES.items() if dtype == given.dtype), str(given.dtype))
