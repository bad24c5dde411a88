"""Models of rows: a matrix of features in, an answer for each row out. What their engines have in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from serving.engines.base.datatypes import BYTES, DATATYPES, Tensor, datatype_of
from serving.engines.base.engine import ANY, Cancellation, Signature, TensorSpec
from serving.engines.base.errors import Cancelled, EngineError, InferenceFailed, InputRefused, LoadFailed
from serving.engines.base.loaded import LoadedModel

INPUT: Final = "input-0"
OUTPUT: Final = "output-0"
"""Names of the tensors of a model that has none."""
PREDICT: Final = "predict"
"""`OUTPUT` by the name that it has in Python."""
PROBABILITIES: Final = "probabilities"
"""A column for each class; computed when it is asked for."""
FLOATS: Final = "FP64"
"""What features are: the codec takes FP32 too."""

Rows: TypeAlias = Any
"""What a library takes for its features: an array, whose first dimension are the rows."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How an output is made: `compute` asks the model, `read` takes the output out of what it said.

    Outputs with the same `compute` cost one call.
    """

    spec: TensorSpec
    compute: Callable[[Rows], Any]
    read: Callable[[Any], Tensor]


def first_input(inputs: Mapping[str, Tensor]) -> Rows:
    """The rows of a model of one matrix."""
    return inputs[INPUT]


class TabularEngine(LoadedModel):
    """A model of rows, whatever library it is of.

    rows            makes the library's features of the inputs; raises InputRefused
    bounded         as `Engine.bounded`
    enter_thread    is called in the thread of each inference, before it
    """

    def __init__(
        self, platform: str, inputs: Sequence[TensorSpec], answers: Sequence[Answer], *,
        rows: Callable[[Mapping[str, Tensor]], Rows] = first_input, bounded: bool = True,
        enter_thread: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self._answers = _with_alias(answers)
        outputs = tuple(answer.spec for answer in self._answers.values())
        optional = frozenset(self._answers) - {OUTPUT}
        super().__init__(Signature(platform, tuple(inputs), outputs, optional), bounded)
        self._rows = rows
        self._enter_thread = enter_thread

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Ask the model. Raises InputRefused, InferenceFailed, Cancelled; what has begun is not cancelled."""
        if cancellation is not None and cancellation.cancelled:
            raise Cancelled("the inference was cancelled")
        if self._enter_thread is not None:
            self._enter_thread()
        try:
            rows = self._rows(inputs)
            if len(rows) == 0:
                raise InputRefused("the input has no row")
            with np.errstate(all="ignore"):  # no input is to write warnings into the log
                return self._ask(rows, outputs)
        except EngineError:
            raise
        except ValueError as error:  # how all of these libraries refuse
            raise InputRefused(str(error)) from error
        except Exception as error:  # their exceptions have no other common base
            raise InferenceFailed(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Let go of the model."""
        self._answers = {}

    def _ask(self, rows: Rows, outputs: Sequence[str]) -> Sequence[Tensor]:
        said: dict[Hashable, Any] = {}
        made = []
        for name in outputs:
            answer = self._answers[name]
            if answer.compute not in said:
                said[answer.compute] = answer.compute(rows)
            made.append(answer.read(said[answer.compute]))
        return made


def _with_alias(answers: Sequence[Answer]) -> dict[str, Answer]:
    made = {answer.spec.name: answer for answer in answers}
    usual = made[OUTPUT]
    alias = TensorSpec(PREDICT, usual.spec.datatype, usual.spec.shape)
    return {**made, PREDICT: Answer(alias, usual.compute, usual.read)}


def matrix(features: int | None) -> TensorSpec:
    """The input of a model that takes a number of `features` for each row; None when it is not known."""
    return TensorSpec(INPUT, FLOATS, (ANY, ANY if features is None else features))


def spec_of(name: str, example: Tensor) -> TensorSpec:
    """The output of which `example` is the answer for one row."""
    return TensorSpec(name, datatype_of(example).name, (ANY, *example.shape[1:]))


def as_tensor(said: Any, datatype: str | None = None) -> Tensor:
    """An answer as an array of `datatype`, or of the one that fits best where that would lose something.

    Raises LoadFailed when none fits.
    """
    array = np.asarray(said.toarray() if hasattr(said, "toarray") else said)
    if datatype is not None:
        wanted = DATATYPES[datatype].dtype
        if array.dtype == wanted:
            return array
        if np.can_cast(array.dtype, wanted, "same_kind"):
            return array.astype(wanted)
    if array.dtype.kind in "OSU":
        if not all(isinstance(item, str | bytes) for item in array.ravel()):
            raise LoadFailed(
                "the model's answers are neither numbers nor texts: the inference protocol has no such type"
            )
        return array.astype(DATATYPES[BYTES].dtype)
    if array.dtype.kind not in "biuf":
        raise LoadFailed(f"the model's answers are {array.dtype}, which the inference protocol cannot carry")
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return little if little.dtype.itemsize <= DATATYPES[FLOATS].size else little.astype(DATATYPES[FLOATS].dtype)


def as_it_is(said: Tensor) -> Tensor:
    """The answer, which is the output."""
    return said


def both_classes(ones: Tensor) -> Tensor:
    """Of the probabilities of class 1, [n], those of class 0 and class 1, [n, 2]."""
    return np.stack((1 - ones, ones), axis=1)
