"""Map the inputs of an MLflow signature to those of the engine that loads the model.

The signature gives names, types and shapes of the inputs that callers send: a tensor for each column, [rows], or the
tensors themselves. The engine expects a matrix of all columns, a tensor for each column, or tensors of its own names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from serving.engines.base.datatypes import BYTES, DATATYPES, Tensor
from serving.engines.base.engine import ANY, TensorSpec
from serving.engines.base.errors import InputRefused, LoadFailed
from serving.engines.mlflow.flavors import ALLOW
from serving.engines.mlflow.mlmodel import Field, MLmodel

Tensors = Mapping[str, Tensor]
_NUMBERED: Final = re.compile(r"input-(\d+)")
"""Names that engines give to inputs without names, by position."""
_ROWS: Final = 1
_MATRIX: Final = 2


class InputMapping(msgspec.Struct, frozen=True):
    """The inputs that callers send, and the function that converts them to the engine's inputs.

    The function raises InputRefused.
    """

    specs: tuple[TensorSpec, ...]
    convert: Callable[[Tensors], Tensors]


def map_inputs(model: MLmodel, native: Sequence[TensorSpec], uri: str) -> InputMapping:
    """Return the mapping to the inputs `native` of an engine. Raises LoadFailed for a signature that does not fit."""
    fields = model.inputs
    if fields is None or (not model.has_tensors and any(not field.name for field in fields)):
        return InputMapping(tuple(native), lambda inputs: inputs)
    for field in fields:
        if not field.datatype or field.type == "datetime":
            raise LoadFailed(
                f"{uri}: input {field.name!r} of the signature is of type {field.type[:40]!r}, which only the flavor "
                f"python_function serves: {ALLOW}"
            )
    if not model.has_tensors:
        return _columns(fields, native, uri)
    if len(fields) == len(native) == 1:
        return _single(fields[0], native[0], uri)
    if not fields[0].name:
        return _split(fields[0], native, uri)
    return _by_name([_spec(field, field.name) for field in fields], native, uri, {})


def _columns(fields: Sequence[Field], native: Sequence[TensorSpec], uri: str) -> InputMapping:
    specs = [_spec(field, field.name) for field in fields]
    names = [spec.name for spec in specs]
    if len(native) > 1 or native[0].name in names:
        native, aliases = _renamed(native, names, uri)
        return _by_name(specs, native, uri, aliases)
    target, ordered = native[0], _ordered(names, native[0].columns, uri)
    for spec in specs:
        _check_texts(spec, target, uri)
    shape = target.shape
    if shape is not None and len(shape) == _ROWS and len(names) == 1:
        return InputMapping(tuple(specs), lambda inputs: {target.name: _cast(inputs[names[0]], target)})
    width = shape[1] if shape is not None and len(shape) == _MATRIX else ANY
    if (shape is not None and len(shape) != _MATRIX) or width not in (ANY, len(names)):
        raise LoadFailed(
            f"{uri}: the signature has {len(names)} columns, and the model expects {target.name!r} of shape "
            f"{list(shape or ())}: log the model with the signature of its own data"
        )
    return InputMapping(tuple(specs), lambda inputs: {target.name: _stack(inputs, ordered, target)})


def _renamed(
    native: Sequence[TensorSpec], names: Sequence[str], uri: str
) -> tuple[Sequence[TensorSpec], Mapping[str, str]]:
    """Return the engine's inputs with the names of the signature, and the engine's names by these.

    Engines number columns without names. LightGBM stores names without spaces.
    """
    if any(spec.name in names for spec in native):
        return native, {}
    plain = {name.replace(" ", "_"): name for name in names}
    if all(spec.name in plain for spec in native):
        made = [TensorSpec(plain[spec.name], spec.datatype, spec.shape) for spec in native]
        return made, {one.name: spec.name for one, spec in zip(made, native, strict=True)}
    if not all(_NUMBERED.fullmatch(spec.name) for spec in native):
        return native, {}
    positions = [int(spec.name.rpartition("-")[2]) for spec in native]
    if max(positions) >= len(names):
        raise LoadFailed(f"{uri}: the signature has {len(names)} columns, and the model has {max(positions) + 1}")
    aliases = {names[at]: spec.name for at, spec in zip(positions, native, strict=True)}
    made = [TensorSpec(name, spec.datatype, spec.shape) for name, spec in zip(aliases, native, strict=True)]
    return made, aliases


def _ordered(names: list[str], features: Sequence[str], uri: str) -> list[str]:
    """Return the names in the order in which the model was trained. LightGBM stores names without spaces."""
    if not features:
        return names
    for form in (names, [name.replace(" ", "_") for name in names]):
        if set(form) == set(features) and len(set(form)) == len(features):
            return [names[form.index(feature)] for feature in features]
    if len(features) == len(names) and all(re.fullmatch(r"Column_\d+|f\d+|\d+", name) for name in features):
        return names  # trained on an array
    raise LoadFailed(
        f"{uri}: the columns of the signature are not those of the model, {', '.join(map(repr, features[:5]))}: "
        "log the model with the signature of its own data"
    )


def _single(field: Field, target: TensorSpec, uri: str) -> InputMapping:
    """Map a tensor to the only input of the engine."""
    shape = field.shape or ()
    expected = target.shape
    if expected is not None and not _compatible(shape, expected):
        raise LoadFailed(
            f"{uri}: the signature has a tensor of shape {list(shape)}, and the model expects {list(expected)}: "
            "log the model with the signature of its own data"
        )
    spec = _spec(field, field.name or target.name)
    _check_texts(spec, target, uri)
    return InputMapping((spec,), lambda inputs: {target.name: _cast(inputs[spec.name], target)})


def _split(field: Field, native: Sequence[TensorSpec], uri: str) -> InputMapping:
    """Map a matrix to an engine that has an input for each column."""
    shape = field.shape or ()
    if len(shape) != _MATRIX or shape[1] != len(native):
        raise LoadFailed(
            f"{uri}: the signature has one tensor of shape {list(shape)}, and the model has {len(native)} inputs: "
            "log the model with the signature of its own data"
        )
    spec = _spec(field, "input-0")
    return InputMapping(
        (spec,),
        lambda inputs: {one.name: _cast(inputs["input-0"][:, at], one) for at, one in enumerate(native)},
    )


def _by_name(
    specs: Sequence[TensorSpec], native: Sequence[TensorSpec], uri: str, aliases: Mapping[str, str]
) -> InputMapping:
    """Map inputs by their names. The engine may ignore some; `aliases` are the engine's own names."""
    names = {spec.name: spec for spec in specs}
    missing = [spec.name for spec in native if spec.name not in names]
    if missing:
        raise LoadFailed(
            f"{uri}: the signature has no input {missing[0]!r}, which the model expects: "
            "log the model with the signature of its own data"
        )
    for one in native:
        _check_texts(names[one.name], one, uri)

    def convert(inputs: Tensors) -> Tensors:
        return {aliases.get(one.name, one.name): _cast(inputs[one.name], one) for one in native}

    return InputMapping(tuple(specs), convert)


def _check_texts(spec: TensorSpec, target: TensorSpec, uri: str) -> None:
    """Raise LoadFailed if one of both is text, and the other is not."""
    if (spec.datatype == BYTES) != (target.datatype == BYTES):
        raise LoadFailed(
            f"{uri}: input {spec.name!r} is {spec.datatype} in the signature, and the model expects other values: save "
            f"the model as ONNX, or {ALLOW}"
        )


def _compatible(shape: Sequence[int], expected: Sequence[int]) -> bool:
    return len(shape) == len(expected) and all(
        ANY in (one, other) or one == other for one, other in zip(shape, expected, strict=True)
    )


def _spec(field: Field, name: str) -> TensorSpec:
    return TensorSpec(name, field.datatype, (ANY,) if field.shape is None else field.shape)


def _stack(inputs: Tensors, names: Sequence[str], target: TensorSpec) -> Tensor:
    lengths = {len(inputs[name]) for name in names}
    if len(lengths) != 1:
        raise InputRefused(f"the inputs have {sorted(lengths)} elements: each needs the same number of rows")
    matrix = np.empty((lengths.pop(), len(names)), DATATYPES[target.datatype].dtype)
    for at, name in enumerate(names):
        matrix[:, at] = _typed(inputs[name], target)
    return matrix


def _cast(tensor: Tensor, target: TensorSpec) -> Tensor:
    """Return the tensor with the engine's type, and a second dimension of 1 if the engine expects a column."""
    made = _typed(tensor, target)
    if target.shape is not None and len(target.shape) == _MATRIX and made.ndim == _ROWS:
        return made.reshape(-1, 1)
    return made


def _typed(tensor: Tensor, target: TensorSpec) -> Tensor:
    """Return the tensor with the engine's type; floats are rounded. Raises InputRefused for other changes."""
    dtype = DATATYPES[target.datatype].dtype
    with np.errstate(invalid="ignore"):
        made: Tensor = tensor.astype(dtype, copy=False)
    if dtype.kind in "biu" and not np.array_equal(made, tensor):
        raise InputRefused(f"input {target.name!r} of the model is {target.datatype}, which cannot hold these numbers")
    return made
