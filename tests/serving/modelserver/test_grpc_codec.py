"""The gRPC codec with random tensors and random bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from serving.engines.base.datatypes import BF16, BYTES, DATATYPES, Tensor
from serving.engines.base.engine import ANY, Signature, TensorSpec
from serving.modelserver.base.errors import ContentTooLarge, InvalidRequest, ServingError
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.codec import tensors
from serving.modelserver.codec.protocol_v2 import PreparedRequest, V2Codec
from serving.modelserver.grpc import codec as grpc_codec
from serving.modelserver.grpc.codec import CONTENTS, GrpcCodec
from serving.modelserver.grpc.messages import DESCRIPTIONS, ModelInferRequest, ModelInferResponse
from serving.modelserver.grpc.wire import MAX_FIELDS, joined, split

SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
RAW = 7


def codec(datatype: str, rank: int, limits: ServerLimits | None = None) -> GrpcCodec:
    """Return the codec of a model that returns its input."""
    shape = (ANY,) * rank
    signature = Signature("test", (TensorSpec("x", datatype, shape),), (TensorSpec("y", datatype, shape),))
    return GrpcCodec(V2Codec("m", "m-00001", signature, limits or ServerLimits()))


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, Tensor]:
    """Draw a datatype and a tensor of it; BF16 as FP32 with values that BF16 represents exactly."""
    name = draw(st.sampled_from(sorted(DATATYPES)))
    shape = draw(SHAPES)
    if name == BYTES:
        made = np.empty(shape, dtype=object)
        made.ravel()[:] = draw(st.lists(st.binary(max_size=5), min_size=made.size, max_size=made.size))
        return name, made
    if name == BF16:
        upper = draw(arrays.arrays(np.dtype("<u2"), shape, elements=st.integers(0, 0x7F00)))
        return name, (upper.astype("<u4") << 16).view("<f4")
    elements: Any = {"allow_nan": False} if DATATYPES[name].is_float else None
    return name, draw(arrays.arrays(DATATYPES[name].dtype, shape, elements=elements))


def asked(name: str, tensor: Tensor, **more: Any) -> Any:
    """Return a request for `x`, without its contents."""
    one = {"name": "x", "datatype": name, "shape": tensor.shape, **more}
    return ModelInferRequest(model_name="m", inputs=[one], id="id")


def decoded(made: GrpcCodec, message: Any) -> PreparedRequest:
    """Return the prepared request of a message."""
    content = message if isinstance(message, bytes) else message.SerializeToString()
    return made.decode(made.parse(content))


@given(cases(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_tensors_of_all_types_survive_raw_and_large(case: tuple[str, Tensor], large: bool) -> None:
    name, tensor = case
    made = codec(name, tensor.ndim)
    message = asked(name, tensor)
    message.raw_input_contents.append(tensors.to_bytes(tensor, DATATYPES[name]))
    if large:  # a field that the message does not have: it is skipped, and makes the message be taken apart
        content = joined(message.SerializeToString(), 100, [b"\0" * grpc_codec.LARGE])
    else:
        content = message.SerializeToString()
    call = decoded(made, content)
    np.testing.assert_array_equal(call.inputs["x"], tensor)
    answer = ModelInferResponse.FromString(made.encode(call, [call.inputs["x"]]))
    assert (answer.id, answer.outputs[0].datatype, tuple(answer.outputs[0].shape)) == ("id", name, tensor.shape)
    assert list(answer.raw_output_contents) == list(message.raw_input_contents)


@given(cases())
@settings(max_examples=200, deadline=None)
def test_tensors_survive_in_the_field_of_their_type(case: tuple[str, Tensor]) -> None:
    name, tensor = case
    made = codec(name, tensor.ndim)
    field = CONTENTS.get(name)
    if field is None:
        with pytest.raises(InvalidRequest, match="send it in raw_input_contents"):
            decoded(made, asked(name, tensor))
        return
    values = tensor.ravel().tolist()
    call = decoded(made, asked(name, tensor, contents={field: values}))
    np.testing.assert_array_equal(call.inputs["x"], tensor)
    answer = ModelInferResponse.FromString(made.encode(call, [call.inputs["x"]]))
    assert list(getattr(answer.outputs[0].contents, field)) == values
    assert not answer.raw_output_contents


@pytest.mark.parametrize("name", sorted(set(DATATYPES) - set(CONTENTS)))
def test_a_type_without_a_field_is_answered_raw_to_whom_ever(name: str) -> None:
    made = codec(name, 1)
    tensor = np.ones(2, DATATYPES[name].dtype)
    call = PreparedRequest({"x": tensor}, ["y"], [False], "")
    answer = ModelInferResponse.FromString(made.encode(call, [tensor]))
    assert list(answer.raw_output_contents) == [tensors.to_bytes(tensor, DATATYPES[name])]
    assert answer.outputs[0].datatype == name


def test_fp32_and_fp64_are_both_taken_where_the_model_takes_floats() -> None:
    made = codec("FP32", 1)
    given = np.array([1.5, 2.0])
    typed = decoded(made, asked("FP64", given, contents={"fp64_contents": given}))
    raw = asked("FP64", given)
    raw.raw_input_contents.append(given.tobytes())
    for call in (typed, decoded(made, raw)):
        assert call.inputs["x"].dtype == np.float32
        np.testing.assert_array_equal(call.inputs["x"], given)
    with pytest.raises(InvalidRequest, match="range of FP32"):
        decoded(made, asked("FP64", given, contents={"fp64_contents": [1e300, 0.0]}))


WRONG: dict[str, Any] = {
    "no such datatype": {"datatype": "FP8"},
    "another datatype": {"datatype": "INT32", "contents": {"int_contents": [1, 2]}},
    "a field of another type": {"contents": {"fp64_contents": [1.0, 2.0]}},
    "two fields": {"contents": {"fp32_contents": [1.0, 2.0], "int_contents": [1]}},
    "no elements": {},
    "too few elements": {"contents": {"fp32_contents": [1.0]}},
    "a negative size": {"shape": [-2], "contents": {"fp32_contents": [1.0, 2.0]}},
    "a huge size": {"shape": [1 << 62], "contents": {"fp32_contents": [1.0, 2.0]}},
    "another rank": {"shape": [1, 2], "contents": {"fp32_contents": [1.0, 2.0]}},
    "an unknown extension": {
        "parameters": {"shared_memory_region": {"string_param": "r"}},
        "contents": {"fp32_contents": [1.0, 2.0]},
    },
}


@pytest.mark.bad_input("infer-grpc")
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_input_is_refused(wrong: dict[str, Any]) -> None:
    one = {"name": "x", "datatype": "FP32", "shape": [2], **wrong}
    with pytest.raises(InvalidRequest):
        decoded(codec("FP32", 1), ModelInferRequest(inputs=[one]))


def test_a_number_beyond_its_type_is_refused() -> None:
    one = {"name": "x", "datatype": "INT8", "shape": [1], "contents": {"int_contents": [128]}}
    with pytest.raises(InvalidRequest, match="range of INT8"):
        decoded(codec("INT8", 1), ModelInferRequest(inputs=[one]))


@pytest.mark.bad_input("infer-grpc")
@pytest.mark.parametrize(
    ("raw", "contents", "inputs"),
    [([b"\0" * 8, b""], {}, 1), ([b"\0" * 7], {}, 1), ([b"\0" * 8], {"fp32_contents": [1.0, 2.0]}, 1),
     ([b"\0" * 8], {}, 2), ([b"\0" * 8, b"\0" * 8], {}, 2)],
)  # fmt: skip
def test_raw_contents_that_do_not_fit_the_inputs_are_refused(raw: list[bytes], contents: Any, inputs: int) -> None:
    one = {"name": "x", "datatype": "FP32", "shape": [2], **({"contents": contents} if contents else {})}
    with pytest.raises(InvalidRequest):
        decoded(codec("FP32", 1), ModelInferRequest(inputs=[one] * inputs, raw_input_contents=raw))


def test_requested_outputs_are_checked() -> None:
    one = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1.0]}}

    def request(*names: str) -> Any:
        return ModelInferRequest(inputs=[one], outputs=[{"name": name} for name in names])

    made = codec("FP32", 1)
    assert decoded(made, request("y")).outputs == ["y"]
    for names in (("z",), ("y", "y")):
        with pytest.raises(InvalidRequest):
            decoded(made, request(*names))


def test_more_elements_than_allowed_are_refused() -> None:
    few = codec("FP32", 1, ServerLimits(json_numbers=2))
    one = {"name": "x", "datatype": "FP32", "shape": [3], "contents": {"fp32_contents": [1.0, 2.0, 3.0]}}
    with pytest.raises(ContentTooLarge):
        decoded(few, ModelInferRequest(inputs=[one]))
    many = {**one, "shape": [grpc_codec.LARGE], "contents": {"fp32_contents": [1.0] * grpc_codec.LARGE}}
    with pytest.raises(ContentTooLarge):
        few.parse(ModelInferRequest(inputs=[many]).SerializeToString())


def test_a_large_message_of_many_small_parts_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(ContentTooLarge):
        split(b"\x2a\x00" * (MAX_FIELDS + 1), RAW, 1 << 30)  # empty inputs


@given(st.lists(st.binary(max_size=300), max_size=4), st.text(max_size=20), st.integers(0, 1 << 62))
@settings(max_examples=100, deadline=None)
def test_taking_a_message_apart_and_joining_it_changes_nothing(raw: list[bytes], text: str, size: int) -> None:
    message = ModelInferRequest(model_name=text, id=text, inputs=[{"name": text, "shape": [size]}])
    message.raw_input_contents.extend(raw)
    rest, found = split(message.SerializeToString(), RAW, 1 << 20)
    assert list(map(bytes, found)) == raw
    assert ModelInferRequest.FromString(joined(rest, RAW, raw)) == message


@pytest.mark.bad_input("infer-grpc")
@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_refused_or_decoded_alike(content: bytes) -> None:
    made = codec("FP32", 1)
    try:
        rest, raw = split(content, RAW, 1 << 20)
        joined(rest, RAW, map(bytes, raw))
        decoded(made, content)
    except ServingError as error:
        assert error.status in (400, 413)


def test_the_compiled_descriptions_are_those_of_the_files(tmp_path: Path) -> None:
    folder, fresh = DESCRIPTIONS.parent, tmp_path / "fresh.binpb"
    files = sorted(path.name for path in folder.glob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={fresh}", *files]
    subprocess.run(command, check=True)  # a process of its own: beside TensorFlow it ends this one
    assert FileDescriptorSet.FromString(fresh.read_bytes()) == FileDescriptorSet.FromString(DESCRIPTIONS.read_bytes())


def outcome(made: GrpcCodec, content: bytes) -> Any:
    """Return the response of a codec to a message, with the input as output, or its error."""
    try:
        call = made.decode(made.parse(content))
    except ServingError as error:
        return type(error), str(error)
    tensor = call.inputs["x"]
    return tensor.tolist(), tensor.dtype, call.id, call.parameters, made.encode(call, [tensor])


def raw_request(value: float, shape: list[int], sent: str, identity: str) -> bytes:
    """Return a request with one raw number and any shape."""
    one = {"name": "x", "datatype": sent, "shape": shape}
    dtype = "<f8" if sent == "FP64" else "<f4"
    raw = [np.array([value], dtype).tobytes()]
    message = ModelInferRequest(model_name="m", inputs=[one], id=identity, raw_input_contents=raw)
    return bytes(message.SerializeToString())


REQUESTS = st.builds(
    raw_request,
    st.floats(width=32, allow_nan=False),
    st.sampled_from([[1], [2]]),
    st.sampled_from(["FP32", "FP64"]),
    st.sampled_from("ab"),
)
MOVED = st.tuples(REQUESTS, st.integers(0, 60)).map(lambda pair: pair[0][pair[1] :] + pair[0][: pair[1]])
CUT = st.tuples(REQUESTS, st.integers(0, 60), st.binary(max_size=4)).map(lambda cut: cut[0][: cut[1]] + cut[2])


@given(st.lists(REQUESTS | MOVED | CUT, min_size=2, max_size=6))
def test_a_message_means_the_same_whatever_came_before(contents: list[bytes]) -> None:
    seasoned = codec("FP32", 1)
    for content in contents:
        assert outcome(seasoned, content) == outcome(codec("FP32", 1), content)


def test_a_head_is_decoded_once_for_who_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = codec("FP32", 1)
    first = outcome(made, raw_request(1.5, [1], "FP32", "a"))
    monkeypatch.setattr(grpc_codec, "ModelInferRequest", None)
    again = outcome(made, raw_request(2.5, [1], "FP32", "a"))

    assert (first[0], again[0]) == ([1.5], [2.5])
    with pytest.raises(AttributeError):
        outcome(made, raw_request(2.5, [1], "FP32", "b"))
