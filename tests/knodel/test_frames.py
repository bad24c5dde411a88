"""The columns of a data frame, in the order of the model's."""

from __future__ import annotations

import pandas as pd
import pytest

from knodel.frames import in_order, is_frame

FRAME = pd.DataFrame({"b b": [1.0], "a": [2.0]})


@pytest.mark.parametrize(("columns", "values"), [
    (("a", "b b"), [2.0, 1.0]), (("a", "b_b"), [2.0, 1.0]), (("b b", "a"), [1.0, 2.0]), ((), [1.0, 2.0]),
])  # fmt: skip
def test_columns_get_the_order_of_the_model(columns: tuple[str, ...], values: list[float]) -> None:
    assert in_order(FRAME, columns).to_numpy()[0].tolist() == values


def test_a_column_of_the_very_name_comes_before_one_with_a_space() -> None:
    frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["a_b", "a b", "c"])
    with pytest.raises(ValueError, match="'a b' is unknown: the columns of the model are a_b, c"):
        in_order(frame, ("a_b", "c"))


def test_a_frame_that_numbers_its_columns_keeps_them() -> None:
    assert list(in_order(pd.DataFrame([[1.0, 2.0]]), ("a", "b")).columns) == [0, 1]


def test_other_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="'c' is missing, 'b_b' is unknown: the columns of the model are a, c"):
        in_order(FRAME, ("a", "c"))


@pytest.mark.parametrize(
    ("value", "expected"), [(FRAME, True), (FRAME["a"], False), (FRAME.to_numpy(), False), ({}, False)]
)
def test_a_frame_is_recognized(value: object, expected: bool) -> None:
    assert is_frame(value) == expected
