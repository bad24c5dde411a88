"""Which calls may share an inference, and how outputs are divided between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engines.base.engine import ANY, Signature, TensorSpec
from serving.modelserver.codec.protocol_v2 import PreparedRequest
from serving.modelserver.execution.batch import concatenate_inputs, first_unbatchable, rows_of, split_outputs

FLOAT = np.float32


def call(*, outputs: tuple[str, ...] = ("y",), parameters: Any = None, id: str = "", **inputs: Any) -> PreparedRequest:
    return PreparedRequest(inputs, list(outputs), [False] * len(outputs), id, parameters)


def kind(one: PreparedRequest) -> Any:
    found = rows_of(one)
    assert found is not None
    return found.key


def texts(*items: Any) -> Any:
    made = np.empty(len(items), dtype=object)
    made[:] = items
    return made


BASE = call(x=np.zeros((2, 3), FLOAT), z=np.zeros((2,), np.int64))


@pytest.mark.parametrize(
    "alike",
    [
        call(x=np.ones((5, 3), FLOAT), z=np.zeros((5,), np.int64)),
        call(z=np.zeros((1,), np.int64), x=np.zeros((1, 3), FLOAT), id="another"),
        call(x=np.zeros((2, 3), FLOAT), z=np.zeros((2,), np.int64), parameters={}),
    ],
)
def test_calls_that_differ_in_their_rows_only_are_of_one_kind(alike: PreparedRequest) -> None:
    assert kind(alike) == kind(BASE)


@pytest.mark.parametrize(
    "other",
    [
        call(x=np.zeros((2, 4), FLOAT), z=np.zeros((2,), np.int64)),
        call(x=np.zeros((2, 3, 1), FLOAT), z=np.zeros((2,), np.int64)),
        call(x=np.zeros((2, 3), np.float64), z=np.zeros((2,), np.int64)),
        call(x=np.zeros((2, 3), FLOAT)),
        call(x=np.zeros((2, 3), FLOAT), z=np.zeros((2,), np.int64), outputs=("y", "more")),
        call(x=np.zeros((2, 3), FLOAT), z=np.zeros((2,), np.int64), parameters={"temperature": 1}),
    ],
)
def test_what_differs_in_shape_type_outputs_or_parameters_is_of_another_kind(other: PreparedRequest) -> None:
    assert kind(other) != kind(BASE)


def test_texts_and_bytes_are_not_mixed() -> None:
    assert kind(call(x=texts("a", "b"))) == kind(call(x=texts("c")))
    assert kind(call(x=texts("a"))) != kind(call(x=texts(b"a")))


@pytest.mark.parametrize(
    "alone",
    [
        call(x=np.zeros((), FLOAT)),
        call(x=np.zeros((0, 3), FLOAT)),
        call(x=np.zeros((2, 3), FLOAT), z=np.zeros((3,), np.int64)),
    ],
)
def test_a_call_without_rows_is_asked_alone(alone: PreparedRequest) -> None:
    assert rows_of(alone) is None


@settings(max_examples=30)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=8))
def test_each_call_gets_the_answer_to_its_rows(counts: list[int]) -> None:
    rng = np.random.default_rng(sum(counts))
    calls = [call(x=rng.random((count, 2)), z=rng.random((count,))) for count in counts]
    whole = concatenate_inputs(calls)
    found = split_outputs([whole["x"].sum(axis=1) + whole["z"], whole["x"]], counts)
    assert found is not None
    for one, answers in zip(calls, found, strict=True):
        np.testing.assert_array_equal(answers[0], one.inputs["x"].sum(axis=1) + one.inputs["z"])
        np.testing.assert_array_equal(answers[1], one.inputs["x"])


@pytest.mark.parametrize("shape", [(), (1,), (4, 3)])
def test_an_answer_that_has_not_a_row_for_each_row_cannot_be_divided(shape: tuple[int, ...]) -> None:
    assert split_outputs([np.zeros((3, 1)), np.zeros(shape)], [1, 2]) is None


@pytest.mark.parametrize(("shape", "batchable"), [((ANY, 4), True), ((ANY,), True), ((1, 4), False), (None, False)])
def test_a_model_needs_a_first_dimension_that_varies_in_all_tensors(shape: Any, batchable: bool) -> None:
    free, other = TensorSpec("free", "FP32", (ANY,)), TensorSpec("other", "FP32", shape)
    for signature in (Signature("p", (free, other), (free,)), Signature("p", (free,), (free, other))):
        assert first_unbatchable(signature) == ("" if batchable else "'other'")
