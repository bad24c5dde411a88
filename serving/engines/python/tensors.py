"""Convert between the arrays of the protocol and the inputs and results of a user's class. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from serving.engines.base.datatypes import BYTES, DATATYPES, Tensor
from serving.engines.base.engine import ANY, TensorSpec
from serving.engines.base.errors import InferenceFailed, LoadFailed
from serving.engines.base.tensors import fits

INPUT: Final = TensorSpec("input-0", "FP64", None)
OUTPUT: Final = TensorSpec("output-0", "FP64", None)
"""The tensors of a class without declarations; FP64 holds every number of JSON and FP32."""

_INTEGERS: Final = "iu"  # numpy's kinds
_ITEM: Final = 64  # approximate overhead of an object or array in bytes


class _Declaration(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    datatype: str
    shape: list[int] | None = None


def declared_tensors(model: object, attribute: str, default: TensorSpec) -> tuple[TensorSpec, ...]:
    """Return the tensors that `model.inputs` or `.outputs` declares, else `default`. Raises LoadFailed.

    A declaration has the fields of the protocol's metadata: `{"name": "x", "datatype": "FP32", "shape": [-1, 4]}`.
    """
    value = getattr(model, attribute, None)
    if value is None:
        return (default,)
    try:
        made = msgspec.convert(value, list[_Declaration])
    except msgspec.ValidationError as error:
        raise LoadFailed(f'{attribute} is not a list of {{"name", "datatype", "shape"}}: {error}') from error
    specs = tuple(_spec(attribute, one) for one in made)
    if not specs or len({spec.name for spec in specs}) < len(specs):
        raise LoadFailed(f"{attribute} is empty, or has a duplicate name")
    return specs


def writable_inputs(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the inputs for user code: writable arrays, and the elements of BYTES always as `bytes`."""
    return {name: _writable(tensor) for name, tensor in tensors.items()}


def to_outputs(value: Any, specs: Mapping[str, TensorSpec], names: Sequence[str]) -> list[Tensor]:
    """Return the outputs `names` from the result of user code. Raises InferenceFailed.

    The result may be a mapping by name, the array itself for a single output, or a tuple or list in order for several.
    IntArray are converted to the declared datatype. Floats may be rounded, but no number may overflow.
    """
    found = _by_name(value, specs)
    missing = [name for name in names if name not in found]
    if missing:
        raise InferenceFailed(f"the model's result has no output {missing[0]!r}")
    return [_to_output(specs[name], found[name]) for name in names]


def memory_size(tensor: Tensor) -> int:
    """Return the memory of a part of a response in bytes, including its strings."""
    texts = sum(len(item) + _ITEM for item in tensor.ravel()) if tensor.dtype.kind == "O" else 0
    return tensor.nbytes + texts + _ITEM


def concatenate(parts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Join the parts of a response: concatenate the parts of each output along the first dimension."""
    try:
        return [np.concatenate([np.atleast_1d(part) for part in output]) for output in zip(*parts, strict=True)]
    except ValueError as error:
        raise InferenceFailed(f"the parts of the model's response cannot be concatenated: {error}") from error


def _spec(attribute: str, one: _Declaration) -> TensorSpec:
    if one.datatype not in DATATYPES:
        raise LoadFailed(f"{attribute}: {one.name!r} has datatype {one.datatype!r}: use one of {', '.join(DATATYPES)}")
    if one.shape is not None and min(one.shape, default=0) < ANY:
        raise LoadFailed(
            f"{attribute}: {one.name!r} has shape {one.shape}: sizes are at least 0, or {ANY} where they vary"
        )
    return TensorSpec(one.name, one.datatype, None if one.shape is None else tuple(one.shape))


def _writable(tensor: Tensor) -> Tensor:
    if tensor.dtype.kind != "O":
        return tensor if tensor.flags.writeable else tensor.copy()
    made = np.empty(tensor.size, dtype=object)
    made[:] = [item if isinstance(item, bytes) else str(item).encode() for item in tensor.ravel()]
    return made.reshape(tensor.shape)


def _by_name(value: Any, specs: Mapping[str, TensorSpec]) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    if len(specs) == 1:
        return {name: value for name in specs}  # noqa: C420 - the value is the output, not a default
    if isinstance(value, (tuple, list)) and len(value) == len(specs):
        return dict(zip(specs, value, strict=True))
    raise InferenceFailed(
        f"the model returned {type(value).__name__} for its {len(specs)} outputs: return a dict by name"
    )


def _to_output(spec: TensorSpec, value: Any) -> Tensor:
    if spec.datatype == BYTES:
        array = np.asarray(value, dtype=object)
        if not all(isinstance(item, (str, bytes)) for item in array.ravel()):
            raise InferenceFailed(f"output {spec.name!r} is declared as BYTES, but has elements that are not strings")
    else:
        array = _numbers(spec, np.asarray(value))
    if spec.shape is not None and not fits(spec.shape, array.shape):
        raise InferenceFailed(
            f"output {spec.name!r} has shape {list(array.shape)}, but is declared as {list(spec.shape)}"
        )
    return array


def _numbers(spec: TensorSpec, array: Tensor) -> Tensor:
    wanted = DATATYPES[spec.datatype].dtype
    if array.dtype == wanted:
        return array
    whole = array.dtype.kind in _INTEGERS and wanted.kind in _INTEGERS
    if not whole and not np.can_cast(array.dtype, wanted, "same_kind"):
        raise InferenceFailed(f"output {spec.name!r} is {array.dtype}, but is declared as {spec.datatype}")
    with np.errstate(over="ignore", invalid="ignore"):
        made: Tensor = array.astype(wanted)
    lost = not np.array_equal(made, array) if whole else bool(np.any(np.isinf(made) & ~np.isinf(array)))
    if lost:
        raise InferenceFailed(f"output {spec.name!r} has a number out of the range of {spec.datatype}")
    return made
