"""The engine of tabular models: rows of features in, one result for each row out; shared by several libraries."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from serving.engines.base.datatypes import BYTES, DATATYPES, Tensor, datatype_of
from serving.engines.base.engine import ANY, BaseEngine, Cancellation, Signature, TensorSpec
from serving.engines.base.errors import Cancelled, EngineError, InferenceFailed, InputRefused, LoadFailed

INPUT: Final = "input-0"
OUTPUT: Final = "output-0"
"""Names of the tensors of a model that does not name them."""
PREDICT: Final = "predict"
"""Alias of `OUTPUT`, named as the method of an estimator."""
PROBABILITIES: Final = "probabilities"
"""A column for each class; computed only on request."""
FLOATS: Final = "FP64"
"""The datatype of features; the codec accepts FP32 too."""

Rows: TypeAlias = Any
"""The features as the library expects them: an array with a row for each prediction."""


class TabularOutput(NamedTuple):
    """An output: `compute` calls the model, and `read` extracts the output from the result.

    Outputs with the same `compute` share one call.
    """

    spec: TensorSpec
    compute: Callable[[Rows], Any]
    read: Callable[[Any], Tensor]


def matrix_rows(inputs: Mapping[str, Tensor]) -> Rows:
    """Return the rows of a model whose only input is a matrix."""
    return inputs[INPUT]


class TabularEngine(BaseEngine):
    """A tabular model of any library.

    rows            converts the inputs to the library's features; raises InputRefused
    bounded         as `Engine.bounded`
    enter_thread    is called before each inference, in its thread
    """

    def __init__(
        self, platform: str, inputs: Sequence[TensorSpec], outputs: Sequence[TabularOutput], *,
        rows: Callable[[Mapping[str, Tensor]], Rows] = matrix_rows, bounded: bool = True,
        enter_thread: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self._outputs = {output.spec.name: output for output in outputs}
        default = self._outputs[OUTPUT]
        alias = TensorSpec(PREDICT, default.spec.datatype, default.spec.shape)
        self._outputs[PREDICT] = TabularOutput(alias, default.compute, default.read)
        specs = tuple(output.spec for output in self._outputs.values())
        optional = frozenset(self._outputs) - {OUTPUT}
        super().__init__(Signature(platform, tuple(inputs), specs, optional), bounded)
        self._rows = rows
        self._enter_thread = enter_thread

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Call the model. Raises InputRefused, InferenceFailed, Cancelled; a call that has begun is not cancelled."""
        if cancellation is not None and cancellation.cancelled:
            raise Cancelled("the inference was cancelled")
        if self._enter_thread is not None:
            self._enter_thread()
        try:
            rows = self._rows(inputs)
            if len(rows) == 0:
                raise InputRefused("the input has no row")
            with np.errstate(all="ignore"):  # inputs must not cause warnings in the log
                return self._compute(rows, outputs)
        except EngineError:
            raise
        except ValueError as error:  # all of these libraries raise it for an invalid input
            raise InputRefused(str(error)) from error
        except Exception as error:  # the libraries' errors have no other common base class
            raise InferenceFailed(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Release the model."""
        self._outputs = {}

    def _compute(self, rows: Rows, outputs: Sequence[str]) -> Sequence[Tensor]:
        results: dict[Hashable, Any] = {}
        made = []
        for name in outputs:
            output = self._outputs[name]
            if output.compute not in results:
                results[output.compute] = output.compute(rows)
            made.append(output.read(results[output.compute]))
        return made


def matrix_input(features: int | None, columns: Sequence[str] = ()) -> TensorSpec:
    """Return the spec of an input with `features` numbers a row, None when their number is unknown."""
    return TensorSpec(INPUT, FLOATS, (ANY, ANY if features is None else features), tuple(columns))


def output_spec(name: str, example: Tensor) -> TensorSpec:
    """Return the spec of an output with the datatype and the row shape of `example`."""
    return TensorSpec(name, datatype_of(example).name, (ANY, *example.shape[1:]))


def as_tensor(result: Any, datatype: str | None = None) -> Tensor:
    """Convert a result to an array of `datatype`, or of the closest datatype if that would lose information.

    Raises LoadFailed when the protocol has no datatype for it.
    """
    array = np.asarray(result.toarray() if hasattr(result, "toarray") else result)
    if datatype is not None:
        wanted = DATATYPES[datatype].dtype
        if array.dtype == wanted:
            return array
        if np.can_cast(array.dtype, wanted, "same_kind"):
            return array.astype(wanted)
    if array.dtype.kind in "OSU":
        if not all(isinstance(item, str | bytes) for item in array.ravel()):
            raise LoadFailed(
                "the model's results are neither numbers nor strings: the inference protocol has no type for them"
            )
        return array.astype(DATATYPES[BYTES].dtype)
    if array.dtype.kind not in "biuf":
        raise LoadFailed(f"the model's results are {array.dtype}: the inference protocol has no such type")
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return little if little.dtype.itemsize <= DATATYPES[FLOATS].size else little.astype(DATATYPES[FLOATS].dtype)


def identity(result: Tensor) -> Tensor:
    """Return the result unchanged, as the output."""
    return result


def both_classes(ones: Tensor) -> Tensor:
    """Convert the probabilities of class 1, [n], to those of class 0 and class 1, [n, 2]."""
    return np.stack((1 - ones, ones), axis=1)
