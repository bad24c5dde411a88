"""Turn the data of a caller into the inputs that a model expects. Pure.

Without NumPy, lists are sent as JSON. With it, every input is an array and is sent as binary data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from knodel.frames import in_order, is_frame, wrong_names
from knodel.inference.metadata import InputSpec
from serving.client.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DTYPES = {
    "BOOL": "?", "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "<i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8", "BF16": "<f4", "BYTES": "O",
}  # fmt: skip
"""NumPy's code for each datatype, little-endian as in the binary tensor extension; BF16 is held as FP32."""
ANY = -1
FLOATS = ("BF16", "FP16", "FP32", "FP64")


class InputTensor(NamedTuple):
    """An input of a request: `values` is an array, or a flat list without NumPy."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Any


def is_raw_request(data: Any) -> bool:
    """Return whether the data is a request of the Open Inference Protocol, which is sent as it is."""
    inputs = data.get("inputs") if isinstance(data, Mapping) else None
    return isinstance(inputs, list | tuple) and all(
        isinstance(one, Mapping) and {"name", "datatype", "shape"} <= set(one) for one in inputs
    )


def inputs_of(model: str, data: Any, specs: Sequence[InputSpec]) -> list[InputTensor]:
    """Return the inputs for a model, in the order of its metadata.

    `data` is a data frame, an array, a list, or a mapping of these by name of input. Raises UsageError that names the
    expected names, datatypes and shapes.
    """
    given = _by_name(model, data, specs)
    return [_input(model, given[spec.name], spec) for spec in specs]


def _by_name(model: str, data: Any, specs: Sequence[InputSpec]) -> Mapping[str, Any]:
    names = [spec.name for spec in specs]
    if is_frame(data):
        columns = [str(name) for name in data.columns]
        if len(specs) == 1 and names[0] not in columns:
            return {names[0]: _matrix(model, data, specs[0])}
        return _named(model, {str(name): _column(data[name], specs) for name in data.columns}, specs)
    if isinstance(data, Mapping):
        return _named(model, data, specs)
    if len(specs) != 1:
        raise UsageError(f"model {model} has the inputs {', '.join(names)}: give a data frame or a dict by name")
    return {names[0]: data}


def _named(model: str, given: Mapping[str, Any], specs: Sequence[InputSpec]) -> Mapping[str, Any]:
    names = [spec.name for spec in specs]
    if wrong := wrong_names(list(map(str, given)), names):
        raise UsageError(f"the data has {wrong}: the inputs of model {model} are {', '.join(map(_shown, specs))}")
    return given


def _matrix(model: str, frame: Any, spec: InputSpec) -> Any:
    try:
        return in_order(frame, spec.columns).to_numpy()
    except ValueError as error:
        raise UsageError(f"the data frame has {error}; they are the input {spec.name} of model {model}") from error


def _column(column: Any, specs: Sequence[InputSpec]) -> Any:
    """Return a column of a data frame, as a matrix of one column where the model expects one."""
    values = column.to_numpy()
    spec = next((spec for spec in specs if spec.name == str(column.name)), None)
    return values.reshape(-1, 1) if spec is not None and len(spec.shape) == 2 and values.ndim == 1 else values


def _input(model: str, value: Any, spec: InputSpec) -> InputTensor:
    if (numpy := _numpy()) is None:
        shape, flat = _flattened(model, value, spec)
        _check_shape(model, shape, spec)
        return InputTensor(spec.name, spec.datatype, shape, flat)
    array = _array(numpy, model, value, spec)
    _check_shape(model, array.shape, spec)
    return InputTensor(spec.name, spec.datatype, array.shape, array)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _array(numpy: Any, model: str, value: Any, spec: InputSpec) -> NDArray[Any]:
    """Return the value as an array of the input's datatype; a number that would change is refused."""
    if spec.datatype not in DTYPES:
        raise UsageError(f"input {spec.name} of model {model} has the datatype {spec.datatype}: upgrade knodel")
    try:
        array: NDArray[Any] = numpy.asarray(value)
    except ValueError as error:
        raise _ragged(spec) from error
    texts = array.dtype.kind in "SU" or (
        array.dtype.kind == "O" and all(isinstance(item, str | bytes) for item in array.ravel().tolist())
    )
    if spec.datatype == "BYTES":
        if not texts:
            raise _wrong_type(model, array, spec)
        return array.astype(object)
    if array.dtype.kind == "O" and not texts:
        array = numpy.array([[*array.ravel().tolist()]]).reshape(array.shape)  # objects that may all be numbers
    if array.dtype.kind not in "biuf":
        raise _wrong_type(model, array, spec)
    target = numpy.dtype(DTYPES[spec.datatype])
    with numpy.errstate(all="ignore"):
        made: NDArray[Any] = array.astype(target)
        same = spec.datatype in FLOATS or (made.dtype.kind == "b") == (array.dtype.kind == "b")
        if not same or (spec.datatype not in FLOATS and not numpy.array_equal(made, array)):
            raise _wrong_type(model, array, spec)
    return made


def _wrong_type(model: str, array: np.ndarray[Any, Any], spec: InputSpec) -> UsageError:
    found = {"O": "objects", "S": "strings", "U": "strings"}.get(array.dtype.kind, str(array.dtype))
    return UsageError(
        f"input {spec.name} has {found}, which {spec.datatype} cannot hold: model {model} expects {_shown(spec)}"
    )


def _check_shape(model: str, shape: Sequence[int], spec: InputSpec) -> None:
    fits = len(shape) == len(spec.shape) and all(
        wanted in (ANY, size) for wanted, size in zip(spec.shape, shape, strict=True)
    )
    if not fits:
        one_row = len(shape) + 1 == len(spec.shape) and spec.shape[0] == ANY
        hint = ", that is a list of rows" if one_row else ""
        raise UsageError(f"input {spec.name} has shape {list(shape)}: model {model} expects {_shown(spec)}{hint}")


def _flattened(model: str, value: Any, spec: InputSpec) -> tuple[tuple[int, ...], list[Any]]:
    """Return the shape and the elements of nested lists. Raises UsageError for other values."""
    shape: list[int] = []
    flat: list[Any] = [value]
    while flat and all(isinstance(item, list | tuple) for item in flat):
        sizes = {len(item) for item in flat}
        if len(sizes) > 1:
            raise _ragged(spec)
        shape.append(sizes.pop())
        flat = [element for item in flat for element in item]
    wanted: tuple[type, ...] = {"BYTES": (str,), "BOOL": (bool,)}.get(spec.datatype, (int,))
    if spec.datatype in FLOATS:
        wanted = (int, float)
    if not all(isinstance(item, wanted) and (wanted == (bool,) or not isinstance(item, bool)) for item in flat):
        raise UsageError(
            f"input {spec.name} has values that {spec.datatype} cannot hold: model {model} expects {_shown(spec)}"
        )
    if any(isinstance(item, float) and not math.isfinite(item) for item in flat):
        raise UsageError(f"input {spec.name} has NaN or infinity, which JSON cannot hold: install numpy")
    return tuple(shape), flat


def _ragged(spec: InputSpec) -> UsageError:
    return UsageError(f"input {spec.name} is not a tensor, since its rows have different lengths: give {_shown(spec)}")


def _shown(spec: InputSpec) -> str:
    return f"{spec.name} {spec.datatype} {list(spec.shape)}"


def row_count(model: str, inputs: Sequence[InputTensor], specs: Sequence[InputSpec]) -> int:
    """Return the number of rows of all inputs. Raises UsageError if they cannot be split by rows."""
    counts = {one.shape[0] if one.shape else 0 for one in inputs}
    if len(counts) != 1 or any(not spec.shape or spec.shape[0] != ANY for spec in specs):
        shown = ", ".join(map(_shown, specs))
        raise UsageError(f"batch_size splits inputs by rows, and those of model {model} have none in common: {shown}")
    return counts.pop()


def rows_of(inputs: Sequence[InputTensor], begin: int, end: int) -> list[InputTensor]:
    """Return the rows from `begin` to before `end`."""
    parts = []
    for name, datatype, shape, values in inputs:
        size = math.prod(shape[1:])
        rows = values[begin * size : end * size] if isinstance(values, list) else values[begin:end]
        parts.append(InputTensor(name, datatype, (min(end, shape[0]) - begin, *shape[1:]), rows))
    return parts
