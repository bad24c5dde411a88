"""The flavor `python_function` of MLflow models, loaded by `mlflow.pyfunc`. It runs code of the artifact.

`predict` gets what MLflow's own server gives it: a data frame for a signature of columns, else an array or a dict of
arrays. Each parameter of the signature is an optional input with its name. One thread at a time calls the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from serving.engines.base.datatypes import BYTES, DATATYPES, Tensor
from serving.engines.base.engine import ANY, BaseEngine, Cancellation, Signature, TensorSpec
from serving.engines.base.errors import (
    EngineError,
    InferenceFailed,
    InputRefused,
    LoadFailed,
    MissingEngine,
    short_reason,
)
from serving.engines.base.exclusive_slot import ExclusiveSlot
from serving.engines.base.folder import ModelFolder
from serving.engines.base.tabular import OUTPUT, as_tensor
from serving.engines.base.tensors import as_text
from serving.engines.mlflow.mlmodel import Field, MLmodel

if TYPE_CHECKING:
    from serving.engines.base.engine import EngineOptions
    from serving.storage.base.artifact import Artifact

PLATFORM: Final = "mlflow_pyfunc"
INPUT: Final = "input-0"
_QUIET: Final = ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK")


def load_pyfunc(artifact: Artifact, model: MLmodel, _: EngineOptions) -> PyfuncEngine:
    """Load the folder with `mlflow.pyfunc`. Raises LoadFailed, MissingEngine, StorageError."""
    for name in _QUIET:
        os.environ.setdefault(name, "true")
    try:
        import mlflow.pyfunc
        import pandas  # noqa: F401 - of the data frames
    except ModuleNotFoundError as error:
        raise MissingEngine(
            f"flavor python_function needs {error.name}, which is not installed: pip install 'knodel[mlflow]'"
        ) from error
    fields = model.inputs or ()
    for field in fields:
        if not field.datatype:
            raise LoadFailed(
                f"{artifact.uri}: input {field.name!r} of the signature is of type {field.type[:40]!r}: the inference "
                "protocol has no such type"
            )
    with ExitStack() as opened:
        folder = opened.enter_context(ModelFolder(artifact))
        try:
            loaded = mlflow.pyfunc.load_model(str(folder.path), suppress_warnings=True)
        except Exception as error:  # code of the artifact
            reason = folder.without_path(short_reason(error))
            raise LoadFailed(f"{artifact.uri}: mlflow cannot load the model: {reason}") from error
        return PyfuncEngine(loaded, model, opened.pop_all())


class PyfuncEngine(BaseEngine):
    """A `PyFuncModel` of mlflow; `close` closes `opened`."""

    def __init__(self, loaded: Any, model: MLmodel, opened: ExitStack) -> None:
        self._loaded = loaded
        self._opened = opened
        self._slot = ExclusiveSlot()
        self._fields = model.inputs
        self._frames = model.inputs is not None and not model.has_tensors
        inputs = tuple(_spec(field, f"input-{at}") for at, field in enumerate(model.inputs or ()))
        taken = {spec.name for spec in inputs}
        params = [one for one in model.params or () if one.datatype and one.name not in taken]
        self._params = {one.name: one for one in params}
        outputs = tuple(_output(field, at) for at, field in enumerate(model.outputs or ()))
        self._outputs = outputs or (TensorSpec(OUTPUT, "FP64", None),)
        omitted = (one.name for one in model.inputs or () if not one.required)
        optional = frozenset((*self._params, *omitted))
        given = inputs or (TensorSpec(INPUT, "FP64", None),)
        specs = (*given, *(TensorSpec(one.name, one.datatype, None) for one in params))
        super().__init__(Signature(PLATFORM, specs, self._outputs, optional_inputs=optional))

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Call `predict` once. Raises InputRefused, InferenceFailed, Cancelled."""
        params = {name: _plain(inputs[name], field) for name, field in self._params.items() if name in inputs}
        given = {name: tensor for name, tensor in inputs.items() if name not in self._params}
        with self._slot.acquire(cancellation), _user_errors():
            result = self._loaded.predict(self._converted(given), params=params or None)
            found = _results(result, self._outputs)
            return [found[name] for name in outputs]

    def close(self) -> None:
        """Release the model and its files."""
        self._loaded = None
        self._opened.close()

    def _converted(self, inputs: Mapping[str, Tensor]) -> Any:
        """Return the input in the form that MLflow's server gives to `predict`."""
        if not self._frames:
            arrays = {name: _array(tensor) for name, tensor in inputs.items()}
            named = self._fields is not None and bool(self._fields[0].name)
            return arrays if named else arrays[INPUT]
        import pandas

        lengths = {len(tensor) for tensor in inputs.values()}
        if len(lengths) > 1:
            raise InputRefused(f"the inputs have {sorted(lengths)} elements: each needs the same number of rows")
        columns = {}
        for at, field in enumerate(self._fields or ()):
            name = field.name or f"input-{at}"
            if name in inputs:
                columns[field.name or at] = _column(field, inputs[name])
        return pandas.DataFrame(columns)


def _spec(field: Field, unnamed: str) -> TensorSpec:
    return TensorSpec(field.name or unnamed, field.datatype, (ANY,) if field.shape is None else field.shape)


def _output(field: Field, at: int) -> TensorSpec:
    shape = (ANY,) if field.shape is None else field.shape
    return TensorSpec(field.name or f"output-{at}", field.datatype or BYTES, shape)


def _array(tensor: Tensor) -> Tensor:
    return as_text(tensor) if tensor.dtype == object else tensor


def _column(field: Field, tensor: Tensor) -> Any:
    """Return the values of a column of the data frame. Raises InputRefused."""
    if field.type == "datetime":
        import pandas

        try:
            return pandas.to_datetime(as_text(tensor).tolist(), format="mixed")
        except ValueError as error:
            raise InputRefused(f"input {field.name!r} has a text that is not a time: {short_reason(error)}") from error
    if field.type == "binary":
        return [item if isinstance(item, bytes) else str(item).encode() for item in tensor.tolist()]
    return _array(tensor)


def _plain(tensor: Tensor, field: Field) -> Any:
    """Return a parameter as Python's own value: a list, or one element. Raises InputRefused."""
    values = _array(tensor).ravel().tolist()
    if field.shape is not None:
        return values
    if len(values) != 1:
        raise InputRefused(f"parameter {field.name!r} has {len(values)} values: send one")
    return values[0]


def _results(result: Any, specs: Sequence[TensorSpec]) -> dict[str, Tensor]:
    """Return the outputs by name. A result with several parts is a data frame or a dict. Raises InferenceFailed."""
    parts: Callable[[str], Any] | None = None
    if hasattr(result, "columns") or isinstance(result, Mapping):
        parts = result.__getitem__
    if len(specs) == 1 and (parts is None or specs[0].name not in result):
        return {specs[0].name: _tensor(result, specs[0])}
    try:
        return {spec.name: _tensor(parts(spec.name), spec) for spec in specs} if parts else _unnamed(result, specs)
    except (KeyError, IndexError) as error:
        raise InferenceFailed(f"the result has no output {error}") from error


def _unnamed(result: Any, specs: Sequence[TensorSpec]) -> dict[str, Tensor]:
    array = np.asarray(result)
    return {spec.name: _tensor(array[:, at], spec) for at, spec in enumerate(specs)}


def _tensor(result: Any, spec: TensorSpec) -> Tensor:
    try:
        values = result.to_numpy() if hasattr(result, "to_numpy") else np.asarray(result)
        if spec.datatype == BYTES:
            values = np.array([str(item) for item in values.ravel()], dtype=object).reshape(values.shape)
        return as_tensor(values, spec.datatype if DATATYPES[spec.datatype].dtype.kind != "O" else None)
    except (LoadFailed, ValueError, TypeError) as error:
        raise InferenceFailed(f"output {spec.name!r} of the model: {error}") from error


@contextmanager
def _user_errors() -> Iterator[None]:
    """Turn errors of the model inside the block into InputRefused, for a violated signature, or InferenceFailed."""
    try:
        yield
    except EngineError:
        raise
    except BaseException as error:  # code of the artifact may raise anything
        if "schema" in str(error) and type(error).__name__ == "MlflowException":
            raise InputRefused(str(error)) from error
        raise InferenceFailed(f"{type(error).__name__}: {error}") from error
