"""The v2 protocol, as clients see it."""

from __future__ import annotations

import asyncio
import json
import math
import struct
from typing import Any

import pytest

from tests.serving.modelserver.client import tensor
from tests.serving.modelserver.conftest import NAME, REVISION, Running, Serve
from tests.support import models
from tests.support.models import FLOAT, INT64, model, node, value

UINT8, INT8, UINT16, INT16, INT32, UINT32, UINT64, BOOL, DOUBLE = 2, 3, 4, 5, 6, 12, 13, 9, 11  # onnx.proto


def identity(datatype: int, shape: list[int | str] | None = None) -> bytes:
    """Return an identity model x → y."""
    dims = ["n"] if shape is None else shape
    return model([node("Identity", ["x"], ["y"])], [value("x", datatype, dims)], [value("y", datatype, dims)])


def logarithm() -> bytes:
    """Return a model FP32 x → y = ln x, which is NaN below zero."""
    return model([node("Log", ["x"], ["y"])], [value("x", FLOAT, ["n"])], [value("y", FLOAT, ["n"])])


def two_outputs() -> bytes:
    """Return a model FP32 x → abs = |x|, neg = -x."""
    nodes = [node("Abs", ["x"], ["abs"]), node("Neg", ["x"], ["neg"])]
    return model(nodes, [value("x", FLOAT, ["n"])], [value("abs", FLOAT, ["n"]), value("neg", FLOAT, ["n"])])


async def test_an_inference_is_answered_with_revision_and_id(double: Running) -> None:
    answer = await double.infer(tensor([1, 2.5, -3]), id="call 7")
    assert answer.status == 200
    assert answer.headers["knodel-revision"] == REVISION
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == {
        "model_name": NAME,
        "model_version": REVISION,
        "id": "call 7",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [3], "data": [2.0, 5.0, -6.0]}],
    }


async def test_server_and_model_describe_themselves(double: Running) -> None:
    server = (await double.get("/v2")).json
    assert server["name"] == "knodel" and server["extensions"] == ["binary_tensor_data"]
    described = (await double.get(f"/v2/models/{NAME}")).json
    assert described == {
        "name": NAME,
        "versions": [REVISION],
        "platform": "onnx_onnxv1",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
    }


@pytest.mark.parametrize("version", [REVISION, "7", "00007"])
async def test_a_version_is_reached_by_revision_and_by_number(double: Running, version: str) -> None:
    path = f"/v2/models/{NAME}/versions/{version}"
    assert (await double.get(path)).status == 200
    assert (await double.get(f"{path}/ready")).json["ready"] is True
    answer = await double.post({"inputs": [tensor([1.0])]}, f"{path}/infer")
    assert answer.json["outputs"][0]["data"] == [2.0]


@pytest.mark.parametrize(
    "path",
    ["/v2/models/other", "/v2/models/m/versions/8", "/v2/models/m/versions/%D9%A7", "/v2/models/..%2fm",
     "/v2/models/%00", "/v2/models/" + "x" * 5000, "//", "/v1/models/other", "/v2/models/m/versions/7/other"],
)  # fmt: skip
async def test_what_is_not_here_is_404(double: Running, path: str) -> None:
    answer = await double.get(path)
    assert answer.status == 404
    assert len(answer.error) < 200
    assert answer.headers["knodel-revision"] == REVISION


async def test_the_address_of_a_model_answers_its_name_and_paths(double: Running) -> None:
    base = (await double.get("/")).json
    paths = base["paths"]
    assert base["name"] == NAME
    assert (await double.get(paths["metadata"])).json["inputs"]
    assert (await double.get(paths["openapi"])).json["openapi"]
    assert (await double.get(paths["ready"])).json["ready"]
    assert (await double.post({"inputs": [tensor([1.0])]}, paths["infer"])).json["outputs"]
    assert (await double.post({"instances": [1.0]}, paths["predict"])).json["predictions"]
    assert (await double.post({"x": [1.0]}, paths["generate"])).status == 200
    refused = await double.post({"inputs": [tensor([1.0])]}, "/")
    assert refused.status == 405 and paths["infer"] in refused.error


@pytest.mark.parametrize("path", [f"/v2/models/{NAME}/infer/", f"/v2/models/{NAME}/config", "/predict"])
async def test_a_path_that_is_not_there_names_where_the_paths_are(double: Running, path: str) -> None:
    assert "GET / lists the paths" in (await double.post({}, path)).error


async def test_a_wrong_method_is_405_and_names_the_right_one(double: Running) -> None:
    answer = await double.get(f"/v2/models/{NAME}/infer")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert answer.error == "method GET is not allowed here: use POST"
    assert (await double.post({}, "/v2/health/ready")).status == 405


async def test_health_is_json(double: Running) -> None:
    assert (await double.get("/v2/health/live")).json == {"live": True}
    assert (await double.get("/v2/health/ready")).json == {"ready": True}
    assert (await double.get(f"/v2/models/{NAME}/ready")).json == {"name": NAME, "ready": True}


async def test_a_loading_server_lives_but_is_not_ready(serve: Serve) -> None:
    loading = await serve(None)
    assert (await loading.get("/v2/health/live")).status == 200
    for path in ("/v2/health/ready", f"/v2/models/{NAME}/ready", f"/v2/models/{NAME}"):
        answer = await loading.get(path)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert "loading" in answer.error
    answer = await loading.infer(tensor([1.0]))
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize(
    "content_type", [None, "application/json", "Application/JSON; charset=UTF-8", "application/octet-stream"]
)
async def test_json_may_be_called_json_or_nothing(double: Running, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content_type": content_type}
    assert (await double.post({"inputs": [tensor([1.0])]}, **headers)).status == 200


@pytest.mark.parametrize(
    "headers",
    [{"content_type": "application/x-pickle"}, {"content_type": "multipart/form-data; boundary=x"},
     {"content_type": "application/json; charset=latin-1"},
     {"content_encoding": "br"}, {"content_encoding": "gzip, gzip"}],
)  # fmt: skip
async def test_other_kinds_of_bodies_are_415(double: Running, headers: dict[str, str]) -> None:
    assert (await double.post({"inputs": [tensor([1.0])]}, **headers)).status == 415


BAD_BODIES: dict[str, Any] = {
    "empty": b" ",
    "not JSON": b"hello",
    "not UTF-8": b'{"inputs": [{"name": "\xff"}]}',
    "cut off": b'{"inputs": [',
    "a list": [],
    "no inputs": {},
    "an unknown input": {"inputs": [tensor([1.0], name="z")]},
    "a missing input": {"inputs": []},
    "one name twice": {"inputs": [tensor([1.0]), tensor([2.0])]},
    "a text for a number": {"inputs": [tensor(["1"])]},
    "a bool for a number": {"inputs": [tensor([True])]},
    "null for a number": {"inputs": [tensor([None])]},
    "another type": {"inputs": [tensor([1], "INT32")]},
    "an unknown type": {"inputs": [tensor([1], "BF16")]},
    "no type": {"inputs": [{"name": "x", "shape": [1], "data": [1.0]}]},
    "no data": {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32"}]},
    "too little data": {"inputs": [tensor([1.0], shape=[2])]},
    "too much data": {"inputs": [tensor([1.0, 2.0], shape=[1])]},
    "a negative size": {"inputs": [tensor([1.0], shape=[-1])]},
    "a size that is no number": {"inputs": [tensor([1.0], shape=[1.0])]},  # type: ignore[list-item]
    "a huge size": {"inputs": [tensor([1.0], shape=[1 << 63])]},
    "sizes that overflow": {"inputs": [tensor([1.0], shape=[1 << 32, 1 << 32])]},
    "another rank": {"inputs": [tensor([1.0], shape=[1, 1])]},
    "a hundred dimensions": {"inputs": [tensor([1.0], shape=[1] * 100)]},
    "ragged data": {"inputs": [tensor([[1.0], [2.0, 3.0]], shape=[2])]},
    "data nested for another shape": {"inputs": [tensor([[1.0, 2.0]], shape=[2])]},
    "NaN": b'{"inputs": [{"name":"x","shape":[1],"datatype":"FP32","data":[NaN]}]}',
    "Infinity": b'{"inputs": [{"name":"x","shape":[1],"datatype":"FP32","data":[1e999]}]}',
    "more than FP32 has": {"inputs": [tensor([1e39])]},
    "5000 digits": b'{"inputs": [{"name":"x","shape":[1],"datatype":"FP32","data":[' + b"9" * 5000 + b"]}]}",
    "a lone surrogate": b'{"inputs": [{"name":"\\ud800","shape":[1],"datatype":"FP32","data":[1]}]}',
    "100 000 brackets": b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100 000 objects": b'{"more": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "an unknown output": {"inputs": [tensor([1.0])], "outputs": [{"name": "z"}]},
    "an output twice": {"inputs": [tensor([1.0])], "outputs": [{"name": "y"}, {"name": "y"}]},
    "an id that is no text": {"inputs": [tensor([1.0])], "id": 7},
    "parameters that are no values": {"inputs": [tensor([1.0])], "parameters": {"a": [1]}},
    "an extension that is not here": {
        "inputs": [tensor([1.0])],
        "outputs": [{"name": "y", "parameters": {"classification": 1}}],
    },
    "binary data that is not there": {
        "inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}]
    },
    "a flag that is a text": {"inputs": [tensor([1.0])], "parameters": {"binary_data_output": "yes"}},
}


@pytest.mark.bad_input("infer-malformed", "infer-tensors")
@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
async def test_bad_input_is_400_with_a_reason_and_harms_nothing(double: Running, body: Any) -> None:
    answer = await double.post(body)
    assert answer.status == 400, answer.body
    assert answer.error and "Traceback" not in answer.error and "/" not in answer.error
    assert (await double.infer(tensor([1.0]))).json["outputs"][0]["data"] == [2.0]


async def test_the_reason_tells_the_place(double: Running) -> None:
    answer = await double.infer(tensor([1.0, "2"]))
    assert answer.error == "inputs[0].data[1]: Expected `float`, got `str`"


@pytest.mark.parametrize(
    ("onnx", "datatype", "good", "bad"),
    [
        (BOOL, "BOOL", [True, False], [0, "yes"]),
        (UINT8, "UINT8", [0, 255], [-1, 256, 1.5, True]),
        (INT8, "INT8", [-128, 127], [128, "1"]),
        (UINT16, "UINT16", [65535], [65536]),
        (INT16, "INT16", [-32768], [32768]),
        (UINT32, "UINT32", [2**32 - 1], [2**32]),
        (INT32, "INT32", [-(2**31)], [2**31, 1.0]),
        (UINT64, "UINT64", [2**64 - 1], [2**64, -1]),
        (INT64, "INT64", [-(2**63)], [2**63]),
        (FLOAT, "FP32", [0.5, 3], [1e39]),
        (DOUBLE, "FP64", [0.1, 1e300], ["0.1"]),
    ],
)
async def test_every_datatype_is_exact(serve: Serve, onnx: int, datatype: str, good: list[Any], bad: list[Any]) -> None:
    running = await serve(identity(onnx))
    answer = await running.infer(tensor(good, datatype))
    assert answer.json["outputs"] == [{"name": "y", "datatype": datatype, "shape": [len(good)], "data": good}]
    for wrong in bad:
        assert (await running.infer(tensor([wrong], datatype))).status == 400, wrong


async def test_both_floats_are_taken_where_the_model_takes_floats(serve: Serve, double: Running) -> None:
    assert (await double.infer(tensor([0.5], "FP64"))).json["outputs"][0] == {
        "name": "y", "datatype": "FP32", "shape": [1], "data": [1.0],
    }  # fmt: skip
    assert (await double.infer(tensor([1e300], "FP64"))).status == 400


async def test_data_may_nest_as_the_shape_does(serve: Serve) -> None:
    running = await serve(identity(INT64, ["a", 2, "c"]))
    nested = [[[1, 2, 3], [4, 5, 6]]]
    answer = await running.infer(tensor(nested, "INT64", [1, 2, 3]))
    assert answer.json["outputs"][0]["data"] == [1, 2, 3, 4, 5, 6]
    for wrong in ([[[1, 2, 3], [4, 5, 1.5]]], [[[1, 2, 3], [4, 5, [6]]]], [[1, 2, 3], [4, 5, 6]], [[[1, 2, 3]]]):
        assert (await running.infer(tensor(wrong, "INT64", [1, 2, 3]))).status == 400, wrong


async def test_empty_tensors_and_scalars_pass(serve: Serve, double: Running) -> None:
    assert (await double.infer(tensor([]))).json["outputs"][0]["data"] == []
    scalar = await serve(identity(FLOAT, []))
    assert (await scalar.infer(tensor([4.0], shape=[]))).json["outputs"][0]["shape"] == []


async def test_texts_travel_as_they_are(serve: Serve) -> None:
    running = await serve(models.text())
    texts = ["", "plain", "Ünïcode 😀", "nul \0 inside"]
    assert (await running.infer(tensor(texts, "BYTES"))).json["outputs"][0]["data"] == texts


async def test_only_the_requested_outputs_come_in_their_order(serve: Serve) -> None:
    running = await serve(two_outputs())
    both = await running.infer(tensor([-1.0]), outputs=[{"name": "neg"}, {"name": "abs"}])
    assert [output["name"] for output in both.json["outputs"]] == ["neg", "abs"]
    one = await running.infer(tensor([-1.0]), outputs=[{"name": "abs"}])
    assert [output["name"] for output in one.json["outputs"]] == ["abs"]


@pytest.mark.fault("M4")
async def test_nan_is_named_and_not_converted(serve: Serve) -> None:
    running = await serve(logarithm())
    answer = await running.infer(tensor([-1.0]))
    assert answer.status == 500
    assert "NaN" in answer.error and "'y'" in answer.error
    binary = await running.infer(tensor([-1.0]), parameters={"binary_data_output": True})
    assert math.isnan(struct.unpack("<f", binary.binary)[0])


async def test_what_the_model_refuses_is_400_without_its_words(serve: Serve) -> None:
    nodes = [node("Gather", ["table", "x"], ["y"])]
    running = await serve(
        model(nodes, [value("x", INT64, ["n"])], [value("y", FLOAT, ["n"])], [models.floats("table", [1, 2], [2])])
    )
    answer = await running.infer(tensor([5], "INT64"))
    assert answer.status == 400
    assert "error " in answer.error and "Gather" not in answer.error and "onnx" not in answer.error.lower()


def with_binary(inputs: list[dict[str, Any]], blob: bytes, **more: Any) -> tuple[bytes, dict[str, str]]:
    """Return a body with binary tensors, and its headers."""
    message = json.dumps({"inputs": inputs, **more}).encode()
    return message + blob, {
        "inference_header_content_length": str(len(message)),
        "content_type": "application/octet-stream",
    }


def sized(datatype: str, shape: list[int], size: int) -> dict[str, Any]:
    return {"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


async def test_tensors_travel_as_bytes_both_ways(double: Running) -> None:
    blob = struct.pack("<3f", 1, 2, 3)
    body, headers = with_binary([sized("FP32", [3], 12)], blob, parameters={"binary_data_output": True})
    answer = await double.post(body, **headers)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.json["outputs"] == [
        {"name": "y", "datatype": "FP32", "shape": [3], "parameters": {"binary_data_size": 12}}
    ]
    assert answer.binary == struct.pack("<3f", 2, 4, 6)


async def test_an_output_asked_for_in_json_is_json_after_binary_input(double: Running) -> None:
    body, headers = with_binary(
        [sized("FP64", [1], 8)], struct.pack("<d", 4), parameters={"binary_data_output": True},
        outputs=[{"name": "y", "parameters": {"binary_data": False}}],
    )  # fmt: skip
    assert (await double.post(body, **headers)).json["outputs"][0]["data"] == [8.0]


async def test_fp16_travels_as_bytes_only(serve: Serve) -> None:
    running = await serve(models.half())
    body, headers = with_binary(
        [sized("FP16", [1], 2)], struct.pack("<e", 1.5), parameters={"binary_data_output": True}
    )
    assert (await running.post(body, **headers)).binary == struct.pack("<e", -1.5)
    assert (await running.infer(tensor([1.5], "FP16"))).status == 400
    answer = await running.infer(tensor([1.5], "FP32"))
    assert (answer.status, "FP16" in answer.error) == (400, True)  # the output cannot be JSON


async def test_texts_travel_as_bytes_with_their_lengths(serve: Serve) -> None:
    running = await serve(models.text())
    blob = b"".join(struct.pack("<I", len(text)) + text for text in (b"", "Ü".encode()))
    body, headers = with_binary([sized("BYTES", [2], len(blob))], blob, parameters={"binary_data_output": True})
    assert (await running.post(body, **headers)).binary == blob


@pytest.mark.bad_input("infer-tensors")
@pytest.mark.parametrize(
    ("given", "blob"),
    [
        (sized("FP32", [3], 12), b"x" * 11),
        (sized("FP32", [3], 12), b"x" * 13),
        (sized("FP32", [2], 12), b"x" * 12),
        (sized("FP32", [1 << 62], 12), b"x" * 12),
        (sized("FP32", [3], -1), b"x" * 12),
        ({**sized("FP32", [3], 12), "parameters": {"binary_data_size": "12"}}, b"x" * 12),
        ({**sized("FP32", [3], 12), "data": [1.0, 2.0, 3.0]}, b"x" * 12),
    ],
)
async def test_sizes_that_lie_are_400(double: Running, given: dict[str, Any], blob: bytes) -> None:
    body, headers = with_binary([given], blob)
    assert (await double.post(body, **headers)).status == 400


@pytest.mark.bad_input("infer-tensors")
@pytest.mark.parametrize("blob", [b"\x05\0\0\0abc", b"\xff\xff\xff\xff", b"\0\0", b"\x01\0\0\0ab"])
async def test_texts_whose_lengths_lie_are_400(serve: Serve, blob: bytes) -> None:
    running = await serve(models.text())
    body, headers = with_binary([sized("BYTES", [1], len(blob))], blob)
    assert (await running.post(body, **headers)).status == 400


async def test_bytes_that_are_no_bool_and_texts_that_are_no_utf8_are_400(serve: Serve) -> None:
    body, headers = with_binary([sized("BOOL", [1], 1)], b"\x02")
    assert (await (await serve(identity(BOOL))).post(body, **headers)).status == 400
    body, headers = with_binary([sized("BYTES", [1], 5)], b"\x01\0\0\0\xff")
    assert (await (await serve(models.text())).post(body, **headers)).status == 400


@pytest.mark.bad_input("infer-tensors")
@pytest.mark.parametrize("length", ["-1", "1e2", "99999", "9" * 40])
async def test_a_length_of_the_json_part_that_lies_is_400(double: Running, length: str) -> None:
    answer = await double.post({"inputs": [tensor([1.0])]}, inference_header_content_length=length)
    assert answer.status == 400


async def test_each_of_64_callers_at_once_gets_its_own_answer(double: Running) -> None:
    answers = await asyncio.gather(*(double.infer(tensor([float(n)]), id=str(n)) for n in range(64)))
    assert [(answer.json["id"], answer.json["outputs"][0]["data"]) for answer in answers] == [
        (str(n), [2.0 * n]) for n in range(64)
    ]
