"""Messages with random tensors and random bytes."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from serving.engines.base.datatypes import BF16, BYTES, DATATYPES, Tensor
from serving.engines.base.engine import ANY, Signature, TensorSpec
from serving.modelserver.base.errors import ContentTooLarge, InvalidRequest, ServingError
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.codec import tensors
from serving.modelserver.codec.messages import check_elements
from serving.modelserver.codec.protocol_v2 import ResponseBody, V2Codec

SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
NUMBERS = [name for name in DATATYPES if name not in (BYTES, "FP16", BF16)]


def codec(datatype: str, rank: int) -> V2Codec:
    """Return the codec of an identity model."""
    shape = (ANY,) * rank
    spec = TensorSpec("x", datatype, shape)
    return V2Codec("m", "m-00001", Signature("test", (spec,), (TensorSpec("y", datatype, shape),)), ServerLimits())


@st.composite
def numbers(draw: st.DrawFn) -> tuple[str, Tensor]:
    """Generate a datatype, and a tensor of it that JSON can express."""
    name = draw(st.sampled_from(NUMBERS))
    dtype = DATATYPES[name].dtype
    elements: Any = {"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else None
    return name, draw(arrays.arrays(dtype, SHAPES, elements=elements))


def message(name: str, tensor: Tensor, data: Any) -> bytes:
    """Return a request in JSON."""
    given = {"name": "x", "shape": list(tensor.shape), "datatype": name, "data": data}
    return json.dumps({"inputs": [given]}).encode()


@given(numbers())
@settings(max_examples=150, deadline=None)
def test_tensors_survive_json_flat_and_nested(case: tuple[str, Tensor]) -> None:
    name, tensor = case
    made = codec(name, tensor.ndim)
    variants = [tensor.ravel().tolist()] + ([tensor.tolist()] if tensor.ndim and tensor.size else [])
    for data in variants:
        call = made.decode(message(name, tensor, data))
        assert call.inputs["x"].dtype == tensor.dtype
        np.testing.assert_array_equal(call.inputs["x"], tensor)
        answer = json.loads(made.encode(call, [tensor]).body)["outputs"][0]
        assert (answer["datatype"], answer["shape"]) == (name, list(tensor.shape))
        np.testing.assert_array_equal(np.array(answer["data"], dtype=tensor.dtype).reshape(tensor.shape), tensor)


@given(st.sampled_from([name for name in DATATYPES if name not in (BYTES, BF16)]), st.data())
@settings(max_examples=100, deadline=None)
def test_tensors_survive_the_binary_form_bit_by_bit(name: str, data: st.DataObject) -> None:
    tensor = data.draw(arrays.arrays(DATATYPES[name].dtype, SHAPES))
    made = codec(name, tensor.ndim)
    request = {
        "inputs": [
            {"name": "x", "shape": list(tensor.shape), "datatype": name,
             "parameters": {"binary_data_size": tensor.nbytes}}
        ],
        "parameters": {"binary_data_output": True},
    }  # fmt: skip
    text = json.dumps(request).encode()
    call = made.decode(text + tensor.tobytes(), len(text))
    assert call.inputs["x"].tobytes() == tensor.tobytes()
    reply = made.encode(call, [call.inputs["x"]])
    assert reply.body[reply.json_length :] == tensor.tobytes()


@given(arrays.arrays(np.dtype("<u2"), arrays.array_shapes(max_dims=2, min_side=0, max_side=5)))
def test_bf16_survives_the_binary_form_bit_by_bit(bits: Tensor) -> None:
    datatype = DATATYPES[BF16]
    tensor = tensors.from_bytes("x", datatype, bits.shape, memoryview(bits.tobytes()))
    assert tensor.dtype == np.float32
    expected = np.where(np.isnan(tensor), bits | 0x40, bits)  # a NaN is made quiet
    np.testing.assert_array_equal(
        np.frombuffer(tensors.to_bytes(tensor, datatype), "<u2").reshape(bits.shape), expected
    )


@given(st.floats(width=32, min_value=-(2.0**127), max_value=2.0**127))
def test_an_fp32_becomes_the_nearest_bf16(value: float) -> None:
    wire = tensors.to_bytes(np.array([value], np.float32), DATATYPES[BF16])
    made = float(tensors.from_bytes("x", DATATYPES[BF16], [1], memoryview(wire))[0])
    below, above = (
        float(tensors.from_bytes("x", DATATYPES[BF16], [1], memoryview(struct.pack("<H", bits)))[0])
        for bits in neighbours(value)
    )
    assert abs(made - value) == min(abs(below - value), abs(above - value))


def neighbours(value: float) -> tuple[int, int]:
    """Return the bits of the BF16 values next to an FP32 on either side."""
    half = struct.unpack("<I", struct.pack("<f", value))[0] >> 16
    return half, half + 1


def test_a_bf16_output_is_named_so_and_travels_as_bytes_only() -> None:
    made = codec(BF16, 1)
    text = json.dumps({"inputs": [{"name": "x", "shape": [2], "datatype": BF16, "parameters": {"binary_data_size": 4}}],
                       "parameters": {"binary_data_output": True}}).encode()  # fmt: skip
    call = made.decode(text + b"\x80\x3f\x20\xc0", len(text))
    assert call.inputs["x"].tolist() == [1.0, -2.5]
    reply = made.encode(call, [call.inputs["x"]])
    assert reply.body[reply.json_length :] == b"\x80\x3f\x20\xc0"
    assert json.loads(reply.body[: reply.json_length])["outputs"][0]["datatype"] == BF16
    in_json = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.5]}]}).encode()
    with pytest.raises(InvalidRequest, match="binary"):
        made.encode(made.decode(in_json), [np.ones(1, np.float32)])


def test_what_nests_without_commas_is_counted_too() -> None:
    with pytest.raises(ContentTooLarge):
        check_elements(b"[[" * 100 + b"]]" * 100, 150)


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_texts_survive_the_binary_form(texts: list[bytes]) -> None:
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    wire = tensors.to_bytes(array, DATATYPES[BYTES])
    assert tensors.from_bytes("x", DATATYPES[BYTES], [len(texts)], memoryview(wire)).tolist() == texts


@pytest.mark.bad_input("infer-tensors")
@pytest.mark.parametrize("datatype", sorted(DATATYPES))
@pytest.mark.parametrize("shape", [[1 << 62, 0, 1 << 62], [(1 << 63) - 1, (1 << 63) - 1, 0]])
def test_no_elements_of_an_overflowing_shape_are_refused(datatype: str, shape: list[int]) -> None:
    with pytest.raises(InvalidRequest, match="too large"):
        tensors.from_bytes("x", DATATYPES[datatype], shape, memoryview(b""))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ODD_INPUTS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("x") | JSON_VALUES,
        "shape": st.lists(st.integers(-2, 5) | st.integers(), max_size=4) | JSON_VALUES,
        "datatype": st.sampled_from(sorted(DATATYPES)) | JSON_VALUES,
        "data": st.lists(JSON_VALUES, max_size=5) | JSON_VALUES,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": st.integers() | JSON_VALUES})
        | JSON_VALUES,
    },
)
ODD_REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "inputs": st.lists(ODD_INPUTS, max_size=3) | JSON_VALUES,
        "outputs": st.lists(st.fixed_dictionaries({"name": st.just("y") | JSON_VALUES}), max_size=2) | JSON_VALUES,
        "id": JSON_VALUES,
        "parameters": JSON_VALUES,
    },
)


def decode_or_refuse(body: bytes, json_length: int | None) -> None:
    """Assert that any bytes are decoded, or refused with an error of the caller."""
    try:
        codec("FP32", 1).decode(body, json_length)
    except ServingError as error:
        assert 400 <= error.status < 500
        assert "\n" not in str(error)


@given(ODD_REQUESTS, st.binary(max_size=10))
@settings(max_examples=300, deadline=None)
def test_odd_requests_are_decoded_or_refused(request: Any, tail: bytes) -> None:
    text = msgspec.json.encode(request)
    decode_or_refuse(text, None)
    decode_or_refuse(text + tail, len(text))


@given(st.binary(max_size=200), st.none() | st.integers(-5, 300))
@settings(max_examples=200, deadline=None)
def test_odd_bytes_are_decoded_or_refused(body: bytes, json_length: int | None) -> None:
    decode_or_refuse(body, json_length)


@given(st.floats(width=64, allow_nan=False, allow_infinity=False))
def test_a_float_is_rounded_or_refused_and_never_becomes_infinite(value: float) -> None:
    try:
        array = tensors.from_numbers("x", DATATYPES["FP32"], [1], [value])
    except ServingError:
        assert abs(value) > float(np.finfo(np.float32).max)
    else:
        assert math.isfinite(array[0]) and array[0] == np.float32(value)


def test_a_reply_without_binary_data_is_json_alone() -> None:
    made = codec("FP32", 1)
    tensor = np.ones(1, np.float32)
    assert made.encode(made.decode(message("FP32", tensor, [1.0])), [tensor]) == ResponseBody(
        b'{"model_name":"m","model_version":"m-00001","outputs":'
        b'[{"name":"y","datatype":"FP32","shape":[1],"data":[1.0]}]}'
    )


def test_a_large_tensor_is_not_refused_for_its_size() -> None:
    made = codec("FP32", 1)
    tensor = np.zeros(200_000, np.float32)
    assert made.decode(message("FP32", tensor, tensor.tolist())).inputs["x"].shape == (200_000,)


@pytest.mark.parametrize("shape", [[0, 1 << 62], [1 << 62, 0], [0, 1 << 62, 1 << 62]])
def test_no_elements_in_a_huge_shape_are_decoded_or_refused(shape: list[int]) -> None:
    try:
        tensors.from_numbers("x", DATATYPES["FP64"], shape, [])
    except ServingError as error:
        assert error.status == 400


def test_a_signalling_nan_is_narrowed_without_a_word() -> None:
    signalling = np.frombuffer(b"\x01\0\0\0\0\0\xf0\x7f", "<f8")

    assert np.isnan(tensors.narrowed("x", signalling, DATATYPES["FP32"])).all()
