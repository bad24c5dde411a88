"""Between the arrays of the protocol and what a user's class declares, takes and gives. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from serving.engines.base.datatypes import BYTES, DATATYPES, Tensor
from serving.engines.base.engine import ANY, TensorSpec
from serving.engines.base.errors import InferenceFailed, LoadFailed
from serving.engines.base.shapes import fits

INPUT: Final = TensorSpec("input-0", "FP64", None)
OUTPUT: Final = TensorSpec("output-0", "FP64", None)
"""Of a class that declares nothing: FP64 holds every number that JSON and FP32 can carry."""

_INTEGERS: Final = "iu"  # numpy's kinds
_ITEM: Final = 64  # bytes that an object or array takes beside what it holds, roughly


class _Declaration(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    datatype: str
    shape: list[int] | None = None


def declared(model: object, attribute: str, default: TensorSpec) -> tuple[TensorSpec, ...]:
    """What `model.inputs` or `.outputs` says, in the words of the protocol's metadata. Raises LoadFailed."""
    value = getattr(model, attribute, None)
    if value is None:
        return (default,)
    try:
        made = msgspec.convert(value, list[_Declaration])
    except msgspec.ValidationError as error:
        raise LoadFailed(f'{attribute} is no list of {{"name", "datatype", "shape"}}: {error}') from error
    specs = tuple(_spec(attribute, one) for one in made)
    if not specs or len({spec.name for spec in specs}) < len(specs):
        raise LoadFailed(f"{attribute} is empty, or has a name twice")
    return specs


def own(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs as users' code has them: arrays that it may change, BYTES always as `bytes`."""
    return {name: _own(tensor) for name, tensor in tensors.items()}


def answers(value: Any, specs: Mapping[str, TensorSpec], names: Sequence[str]) -> list[Tensor]:
    """The outputs `names` of what a user's code gave. Raises InferenceFailed.

    It may give a mapping by name; with one output, the array itself; with several, a tuple or list of them in order.
    Nothing is converted silently: floats may be rounded, numbers must fit.
    """
    found = _by_name(value, specs)
    missing = [name for name in names if name not in found]
    if missing:
        raise InferenceFailed(f"the model's answer has no output {missing[0]!r}")
    return [_checked(specs[name], found[name]) for name in names]


def size_of(tensor: Tensor) -> int:
    """The memory that a part of an answer takes (bytes), its texts included."""
    texts = sum(len(item) + _ITEM for item in tensor.ravel()) if tensor.dtype.kind == "O" else 0
    return tensor.nbytes + texts + _ITEM


def joined(parts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Answers that came bit by bit as one: each output's parts one behind the other, along the first dimension."""
    try:
        return [np.concatenate([np.atleast_1d(part) for part in output]) for output in zip(*parts, strict=True)]
    except ValueError as error:
        raise InferenceFailed(f"the parts of the model's answer do not fit together: {error}") from error


def _spec(attribute: str, one: _Declaration) -> TensorSpec:
    if one.datatype not in DATATYPES:
        raise LoadFailed(f"{attribute}: {one.name!r} has datatype {one.datatype!r}: known are {', '.join(DATATYPES)}")
    if one.shape is not None and min(one.shape, default=0) < ANY:
        raise LoadFailed(
            f"{attribute}: {one.name!r} has shape {one.shape}: a size is at least 0, or {ANY} where it varies"
        )
    return TensorSpec(one.name, one.datatype, None if one.shape is None else tuple(one.shape))


def _own(tensor: Tensor) -> Tensor:
    if tensor.dtype.kind != "O":
        return tensor if tensor.flags.writeable else tensor.copy()
    made = np.empty(tensor.size, dtype=object)
    made[:] = [item if isinstance(item, bytes) else str(item).encode() for item in tensor.ravel()]
    return made.reshape(tensor.shape)


def _by_name(value: Any, specs: Mapping[str, TensorSpec]) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    if len(specs) == 1:
        return {name: value for name in specs}  # noqa: C420 - the value is no default, it is the output
    if isinstance(value, (tuple, list)) and len(value) == len(specs):
        return dict(zip(specs, value, strict=True))
    raise InferenceFailed(f"the model gave {type(value).__name__} for its {len(specs)} outputs: give a dict by name")


def _checked(spec: TensorSpec, value: Any) -> Tensor:
    array = _texts(spec, value) if spec.datatype == BYTES else _numbers(spec, np.asarray(value))
    if spec.shape is not None and not fits(spec.shape, array.shape):
        raise InferenceFailed(f"output {spec.name!r} has shape {list(array.shape)}, declared is {list(spec.shape)}")
    return array


def _texts(spec: TensorSpec, value: Any) -> Tensor:
    array = np.asarray(value, dtype=object)
    if not all(isinstance(item, (str, bytes)) for item in array.ravel()):
        raise InferenceFailed(f"output {spec.name!r} is declared as BYTES and has elements that are no text")
    return array


def _numbers(spec: TensorSpec, array: Tensor) -> Tensor:
    wanted = DATATYPES[spec.datatype].dtype
    if array.dtype == wanted:
        return array
    whole = array.dtype.kind in _INTEGERS and wanted.kind in _INTEGERS
    if not whole and not np.can_cast(array.dtype, wanted, "same_kind"):
        raise InferenceFailed(f"output {spec.name!r} is {array.dtype}, declared is {spec.datatype}")
    with np.errstate(over="ignore", invalid="ignore"):
        made: Tensor = array.astype(wanted)
    lost = not np.array_equal(made, array) if whole else bool(np.any(np.isinf(made) & ~np.isinf(array)))
    if lost:
        raise InferenceFailed(f"output {spec.name!r} has a number beyond {spec.datatype}")
    return made
