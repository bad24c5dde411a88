"""The engine of tabular models, with models built by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from serving.engines.base.engine import ANY, Cancellation, TensorSpec
from serving.engines.base.errors import Cancelled, InferenceFailed, InputRefused, LoadFailed
from serving.engines.base.tabular import TabularEngine, TabularOutput, as_tensor, both_classes, matrix_input
from serving.engines.base.warmup import warm_up
from tests.support.tabular import ask, described


class Counting:
    """Sum each row, and count the calls."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, rows: Any) -> Any:
        """Return the sums. Raises an error for rows that begin with 13."""
        self.asked += 1
        if (rows[:, 0] == 13).any():
            raise ArithmeticError("unlucky")
        if np.isnan(rows).any():
            raise ValueError("NaN")
        return rows.sum(axis=1)


def engine(compute: Counting) -> TabularEngine:
    spec = TensorSpec("output-0", "FP64", (ANY,))
    twice = TensorSpec("twice", "FP64", (ANY,))
    return TabularEngine("test", [matrix_input(2)], [TabularOutput(spec, compute, lambda said: said),
                                               TabularOutput(twice, compute, lambda said: 2 * said)])  # fmt: skip


def test_outputs_that_come_of_one_call_cost_one() -> None:
    compute = Counting()
    once, twice = engine(compute).infer({"input-0": np.ones((3, 2))}, ["output-0", "twice"])
    assert once.tolist() == [2, 2, 2] and twice.tolist() == [4, 4, 4] and compute.asked == 1


def test_the_first_output_has_its_name_of_python_too_and_alone_is_usual() -> None:
    made = engine(Counting())
    assert list(described(made)) == ["output-0", "twice", "predict"]
    assert made.signature.default_outputs == ("output-0",)
    assert ask(made, "predict", [[1, 2]]) == 3


def test_refusal_failure_and_cancellation_are_told_apart() -> None:
    compute = Counting()
    made = engine(compute)
    for refused in ([[1, np.nan]], np.empty((0, 2))):
        with pytest.raises(InputRefused):
            ask(made, "output-0", refused)
    with pytest.raises(InferenceFailed, match="ArithmeticError: unlucky"):
        ask(made, "output-0", [[13, 0]])
    cancellation, before = Cancellation(), compute.asked
    cancellation.cancel()
    with pytest.raises(Cancelled):
        made.infer({"input-0": np.ones((1, 2))}, ["output-0"], cancellation)
    assert compute.asked == before


@pytest.mark.parametrize(
    ("said", "dtype"),
    [
        (np.array([True]), "bool"), (np.array([1], np.int16), "int16"), (np.array([1], ">i4"), "int32"),
        (np.array([1], np.float16), "float16"), (np.array([1], np.longdouble), "float64"),
        (np.array(["a"]), "object"), (np.array(["a"], object), "object"), ([1.5], "float64"),
    ],
)  # fmt: skip
def test_answers_get_a_type_that_the_protocol_has(said: Any, dtype: str) -> None:
    made = as_tensor(said)
    assert made.dtype == dtype and made.dtype.isnative and made.tolist() == list(said)


def test_an_answer_has_its_usual_type_unless_that_loses_something() -> None:
    assert as_tensor(np.array([1], np.float32), "FP64").dtype == "float64"
    assert as_tensor(np.array([1.5]), "INT64").tolist() == [1.5]
    assert as_tensor(np.array(["a"]), "BYTES").dtype == "object"


@pytest.mark.parametrize("said", [np.array([None]), np.array([1j]), np.array(["2020-01-01"], "M8[D]")])
def test_answers_without_such_a_type_are_refused(said: Any) -> None:
    with pytest.raises(LoadFailed):
        as_tensor(said)


def test_the_probability_of_one_class_is_that_of_both() -> None:
    assert both_classes(np.array([0.25, 1])).tolist() == [[0.75, 0.25], [0, 1]]


def test_warm_up_asks_for_everything_once_and_measures_what_is_usual() -> None:
    compute = Counting()
    made, asked = engine(compute), []
    infer = made.infer

    def remembered(inputs: Any, outputs: Any, cancellation: Any = None) -> Any:
        asked.append(tuple(outputs))
        return infer(inputs, outputs, cancellation)

    made.infer = remembered  # type: ignore[method-assign]
    assert warm_up(made, cpu_time=iter([0.0, 0.004, 1.0, 1.001]).__next__) == pytest.approx(0.001)
    assert asked == [("output-0", "twice", "predict"), ("output-0",)]
