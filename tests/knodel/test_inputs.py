"""Values of callers become the tensors of a model's inputs, or are refused with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from knodel.inputs import InputMismatch, arrays_of
from serving.engines.base.engine import TensorSpec

MATRIX = TensorSpec("x", "FP64", (-1, 2), ("a", "b"))
COLUMNS = [TensorSpec("age", "FP64", (-1,)), TensorSpec("city", "BYTES", (-1,)), TensorSpec("count", "INT32", (-1,))]
PEOPLE = pd.DataFrame({"city": ["Bern"], "count": [3], "age": [20]})


@pytest.mark.parametrize("values", [
    [[1, 2], [3, 4]], np.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]], np.float32), {"x": [[1, 2], [3, 4]]},
    pd.DataFrame({"b": [2, 4], "a": [1, 3]}), pd.DataFrame([[1, 2], [3, 4]]),
    pd.DataFrame({"a": [1, 3], "b": [2.0, 4.0]}, dtype=object),
])  # fmt: skip
def test_a_matrix(values: Any) -> None:
    made = arrays_of(values, [MATRIX])
    assert made["x"].dtype == np.float64
    assert made["x"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("values", [PEOPLE, PEOPLE.to_dict("list"), PEOPLE.convert_dtypes()])
def test_columns(values: Any) -> None:
    made = arrays_of(values, COLUMNS)
    assert {name: (array.dtype.str, array.tolist()) for name, array in made.items()} == {
        "age": ("<f8", [20.0]), "city": ("|O", ["Bern"]), "count": ("<i4", [3]),
    }  # fmt: skip


def test_inputs_that_are_not_known() -> None:
    assert list(arrays_of(PEOPLE, None)) == ["city", "count", "age"]
    assert list(arrays_of([1.0], None)) == ["input-0"]


def test_nothing_is_copied_without_need() -> None:
    rows = np.ones((3, 2))
    assert arrays_of(rows, [MATRIX])["x"] is rows


@pytest.mark.parametrize(("values", "specs", "reason"), [
    ([[1, 2, 3]], [MATRIX], r"input 'x' has shape \[1, 3\]: the model expects \[-1, 2\]"),
    ([["1", "2"]], [MATRIX], "input 'x' is <U1: the model expects FP64"),
    ([["one", "2"]], [MATRIX], "input 'x' has values that are not numbers: the model expects FP64"),
    (pd.DataFrame({"a": [1], "c": [2]}), [MATRIX], "'b' is missing, 'c' is unknown: the columns"),
    (PEOPLE.drop(columns="age"), COLUMNS, "'age' is missing: the inputs of the model are age, city, count"),
    (PEOPLE.assign(count=1.5), COLUMNS, "input 'count' is float64: the model expects INT32"),
    (PEOPLE.assign(count=1 << 40), COLUMNS, "input 'count' is int64: the model expects INT32"),
    (PEOPLE.assign(city=1), COLUMNS, "input 'city' has values that are not strings"),
    (PEOPLE.assign(age="20"), COLUMNS, "input 'age' .*: the model expects FP64"),
    (PEOPLE[:0], COLUMNS, "there is no row: give at least one"),
    ([1, 2, 3], COLUMNS, "the model has the inputs age, city, count: give a data frame or a dict by name"),
    (PEOPLE.assign(count=pd.Series([1.5], dtype=object)), COLUMNS, "input 'count' is object: the model expects INT32"),
    (PEOPLE.assign(count=pd.Series([1 << 70])), COLUMNS, "input 'count' has a number outside the range of INT32"),
    ([(1 << 53) + 1, 2.5], [TensorSpec("n", "INT64", (-1,))], "input 'n' is float64: the model expects INT64"),
    ([1e300], [TensorSpec("n", "FP32", (-1,))], "input 'n' has a number outside the range of FP32"),
    ([1 + 2j], [TensorSpec("n", "FP32", (-1,))], "input 'n' is complex128: the model expects FP32"),
    (PEOPLE.assign(age=pd.to_datetime(["2026-01-01"])), COLUMNS, r"input 'age' is datetime64\[.*\]: the model expects"),
    ([np.timedelta64(1, "h")], [TensorSpec("n", "INT64", (-1,))], r"input 'n' is timedelta64\[h\]: the model expects"),
    ([np.datetime64("2026-01-01")], None, "input 'input-0' is datetime64.*: give numbers or strings"),
])  # fmt: skip
def test_values_that_do_not_fit_are_refused(values: Any, specs: Any, reason: str) -> None:
    with pytest.raises(InputMismatch, match=reason):
        arrays_of(values, specs)
