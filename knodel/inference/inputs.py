"""Make the inputs of a request from the data of a caller. Pure.

With NumPy, every input is an array (`knodel.inputs`) and is sent as binary data. Without it, lists are sent as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from knodel.frames import wrong_names
from knodel.inputs import InputMismatch, arrays_of
from serving.client.errors import UsageError
from serving.engines.base.engine import ANY, TensorSpec

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


def inputs_of(model: str, data: Any, specs: Sequence[TensorSpec]) -> list[InputTensor]:
    """Return the inputs for a model, in the order of its metadata.

    `data` is a data frame, an array, a list, or a mapping of these by name of input. Raises InputMismatch that names
    the inputs that the model expects.
    """
    try:
        if not _has_numpy():
            return _lists_of(data, specs)
        arrays = arrays_of(data, specs)
        return [InputTensor(spec.name, spec.datatype, arrays[spec.name].shape, arrays[spec.name]) for spec in specs]
    except InputMismatch as error:
        expected = ", ".join(map(_shown, specs))
        raise InputMismatch(f"the data does not fit model {model}: {error}; its inputs: {expected}") from error


def _has_numpy() -> bool:
    try:
        import numpy  # noqa: F401  its absence is the question
    except ImportError:
        return False
    return True


def _lists_of(data: Any, specs: Sequence[TensorSpec]) -> list[InputTensor]:
    """Return nested lists as inputs."""
    names = [spec.name for spec in specs]
    if not isinstance(data, Mapping):
        if len(specs) != 1:
            raise InputMismatch(f"the model has the inputs {', '.join(names)}: give a dict by name")
        data = {names[0]: data}
    if wrong := wrong_names(list(map(str, data)), names):
        raise InputMismatch(wrong)
    inputs = []
    for spec in specs:
        shape, flat = _flattened(data[spec.name], spec)
        if not flat:
            raise InputMismatch("there is no row: give at least one")
        expected = spec.shape or ()
        if len(shape) != len(expected) or any(
            wanted not in (ANY, size) for wanted, size in zip(expected, shape, strict=True)
        ):
            raise InputMismatch(f"input {spec.name!r} has shape {list(shape)}: the model expects {list(expected)}")
        inputs.append(InputTensor(spec.name, spec.datatype, shape, flat))
    return inputs


def _flattened(value: Any, spec: TensorSpec) -> tuple[tuple[int, ...], list[Any]]:
    """Return the shape and the elements of nested lists."""
    shape: list[int] = []
    flat: list[Any] = [value]
    while flat and all(isinstance(item, list | tuple) for item in flat):
        sizes = {len(item) for item in flat}
        if len(sizes) > 1:
            raise InputMismatch(f"input {spec.name!r} has rows of different lengths: give a tensor")
        shape.append(sizes.pop())
        flat = [element for item in flat for element in item]
    wanted: tuple[type, ...] = {"BYTES": (str,), "BOOL": (bool,)}.get(spec.datatype, (int,))
    if spec.datatype in FLOATS:
        wanted = (int, float)
    if not all(isinstance(item, wanted) and (wanted == (bool,) or not isinstance(item, bool)) for item in flat):
        raise InputMismatch(f"input {spec.name!r} has values that {spec.datatype} cannot hold")
    if any(isinstance(item, float) and not math.isfinite(item) for item in flat):
        raise InputMismatch(f"input {spec.name!r} has NaN or infinity, which JSON cannot hold: `pip install numpy`")
    return tuple(shape), flat


def _shown(spec: TensorSpec) -> str:
    return f"{spec.name} {spec.datatype} {list(spec.shape or ())}"


def row_count(model: str, inputs: Sequence[InputTensor], specs: Sequence[TensorSpec]) -> int:
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
