"""Read the model name and raw tensors of a gRPC request without decoding it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from serving.modelserver.base.errors import ContentTooLarge, InvalidRequest
from serving.modelserver.grpc.messages import ModelInferRequest
from serving.modelserver.grpc.service import MODEL_NAME
from serving.modelserver.grpc.wire import field_size, fields_from, joined, text_of

INPUT = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1.0]}}


def encoded(**fields: object) -> bytes:
    return bytes(ModelInferRequest(**fields).SerializeToString())


def test_it_is_found_wherever_it_stands() -> None:
    name, rest = encoded(model_name="iris"), encoded(id="7", inputs=[INPUT], raw_input_contents=[b"\x0a\x03abc"])
    for message in (name, name + rest, rest + name):
        assert text_of(message, MODEL_NAME) == "iris"


def test_without_one_it_is_empty_and_what_is_no_text_is_no_name() -> None:
    assert text_of(b"", MODEL_NAME) == ""
    assert text_of(encoded(id="7"), MODEL_NAME) == ""
    assert text_of(b"\x0a\x01\xff", MODEL_NAME) == "\ufffd"


@pytest.mark.bad_input("infer-grpc")
@pytest.mark.parametrize("message", [b"\x0a", b"\x0a\x05ab", b"\xff" * 20, b"\x0b"])
def test_what_is_cut_off_is_refused(message: bytes) -> None:
    with pytest.raises(InvalidRequest):
        text_of(message, MODEL_NAME)


def test_a_name_behind_thousands_of_fields_is_not_looked_for() -> None:
    with pytest.raises(ContentTooLarge):
        text_of(b"\x18\x01" * 5000 + encoded(model_name="iris"), MODEL_NAME)


@pytest.mark.parametrize("sizes", [(0,), (1, 127), (128, 3), (16_384,)])
def test_fields_that_are_all_that_follows_are_found_and_have_the_size_that_is_told(sizes: Sequence[int]) -> None:
    contents = [bytes([65]) * size for size in sizes]
    message = joined(b"head", 7, contents)

    found = fields_from(message, 4, 7)

    assert found is not None
    assert [bytes(one) for one in found] == contents
    assert len(message) == 4 + sum(map(field_size, contents))


@pytest.mark.parametrize("rest", [b"", b"\x3a", b"\x3a\x02a", b"\x3a\x01ab", b"\x32\x01a", b"\x3a" + b"\xff" * 11])
def test_what_follows_is_nothing_of_the_kind(rest: bytes) -> None:
    assert fields_from(b"head" + rest, 4, 7) is None
