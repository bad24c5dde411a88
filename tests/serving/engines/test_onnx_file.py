"""The reader of ONNX files with manipulated files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engines.base.errors import LoadFailed
from serving.engines.onnx.file import ExternalData, external_data
from tests.support import models
from tests.support.models import FLOAT, chunk, external, model, node, number, value, varint

TENSOR_ATTRIBUTE, GRAPH_ATTRIBUTE = 5, 6  # fields of AttributeProto
FUNCTIONS, DEFAULTS = 25, 11  # of ModelProto, of FunctionProto


def constant(attribute: bytes) -> bytes:
    """Return a model with one node that has this attribute."""
    return model([node("Constant", [], ["y"], attribute)], [], [value("y", FLOAT, [1])])


def test_a_model_without_other_files_has_none() -> None:
    assert external_data(models.double()) == ()


def test_other_files_are_found_with_their_tensor() -> None:
    assert external_data(models.outside("a/b.bin")) == (ExternalData("factor", "a/b.bin", 0, None),)


def test_a_word_that_only_looks_like_it_is_nothing() -> None:
    assert external_data(model([node("Identity", ["location"], ["y"])], [], [])) == ()


@pytest.mark.bad_input("artifact-onnx")
def test_other_files_in_attributes_and_inner_graphs_are_refused() -> None:
    tensor = external("t", FLOAT, (1,), "x.bin")
    with pytest.raises(LoadFailed, match="'t'"):
        external_data(constant(chunk(1, "value") + chunk(TENSOR_ATTRIBUTE, tensor)))
    graph = chunk(GRAPH_ATTRIBUTE, chunk(5, tensor))
    with pytest.raises(LoadFailed, match="'t'"):
        external_data(constant(chunk(1, "body") + graph))


def test_other_files_in_the_defaults_of_functions_are_refused() -> None:
    attribute = chunk(1, "value") + chunk(TENSOR_ATTRIBUTE, external("t", FLOAT, (1,), "x.bin"))
    with pytest.raises(LoadFailed, match="'t'"):
        external_data(chunk(FUNCTIONS, chunk(DEFAULTS, attribute)))


def test_a_field_whose_number_others_read_as_another_is_refused() -> None:
    entry = chunk(1, "location") + chunk(2, "x.bin")
    disguised = varint((13 << 3 | 2) + (1 << 32)) + varint(len(entry)) + entry  # protobuf drops the bit: field 13
    tensor = number(1, 1) + number(2, FLOAT) + chunk(8, "t") + disguised + number(14, 1)
    with pytest.raises(LoadFailed, match="damaged"):
        external_data(chunk(7, chunk(5, tensor)))


@pytest.mark.bad_input("artifact-onnx", "artifact-headers")
def test_graphs_without_end_within_graphs_are_refused() -> None:
    graph = chunk(5, external("t", FLOAT, (1,), "x.bin"))
    for _ in range(1000):
        graph = chunk(1, chunk(5, chunk(GRAPH_ATTRIBUTE, graph)))
    with pytest.raises(LoadFailed):
        external_data(constant(chunk(GRAPH_ATTRIBUTE, graph)))


@given(st.binary(max_size=200))
def test_bytes_are_read_or_refused(noise: bytes) -> None:
    for content in (noise + b"location", models.outside("x.bin")[:50] + noise + b"location"):
        try:
            external_data(content)
        except LoadFailed:
            continue


def test_offsets_and_lengths_are_read() -> None:
    entries = b"".join(
        chunk(13, chunk(1, key) + chunk(2, text)) for key, text in (("location", "d"), ("offset", "8"), ("length", "4"))
    )
    tensor = number(1, 1) + number(2, FLOAT) + chunk(8, "t") + entries + number(14, 1)
    assert external_data(chunk(7, chunk(5, tensor))) == (ExternalData("t", "d", 8, 4),)
