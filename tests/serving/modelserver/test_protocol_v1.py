"""The v1 protocol, as clients see it."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engines.base.engine import ANY, Signature, TensorSpec
from serving.modelserver.base.errors import ServingError
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.codec.protocol_generate import GenerateCodec
from serving.modelserver.codec.protocol_v1 import V1Codec
from serving.modelserver.codec.protocol_v2 import ProtocolCodec, V2Codec
from tests.serving.modelserver.client import Answer
from tests.serving.modelserver.conftest import NAME, Running, Serve
from tests.support import models
from tests.support.models import FLOAT, INT64, STRING, model, node, value

PREDICT = f"/v1/models/{NAME}:predict"


def plus() -> bytes:
    """Return a model FP32 a [n, 2], INT64 b [n] → sum = a, twice = b + b."""
    nodes = [node("Identity", ["a"], ["same"]), node("Add", ["b", "b"], ["twice"])]
    inputs = [value("a", FLOAT, ["n", 2]), value("b", INT64, ["n"])]
    return model(nodes, inputs, [value("same", FLOAT, ["n", 2]), value("twice", INT64, ["n"])])


def rows_and_sum() -> bytes:
    """Return a model FP32 x [n] → y = -x, total = sum of x."""
    nodes = [node("Neg", ["x"], ["y"]), node("ReduceSum", ["x"], ["total"], models.whole("keepdims", 0))]
    return model(nodes, [value("x", FLOAT, ["n"])], [value("y", FLOAT, ["n"]), value("total", FLOAT, [])])


async def predict(running: Running, path: str = PREDICT, **body: Any) -> Answer:
    return await running.post(body, path)


async def test_instances_are_answered_by_predictions(double: Running) -> None:
    answer = await predict(double, instances=[1, 2.5])
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json == {"predictions": [2.0, 5.0]}
    assert (await predict(double, instances=[{"x": 1}, {"x": 2}])).json == {"predictions": [2.0, 4.0]}
    assert (await predict(double, instances=[1.0], signature_name="serving_default")).status == 200


async def test_inputs_are_rows_in_a_list_and_whole_tensors_by_name(double: Running) -> None:
    assert (await predict(double, inputs=[1, 2])).json == {"predictions": [2.0, 4.0]}
    assert (await predict(double, inputs={"x": [1, 2]})).json == {"outputs": [2.0, 4.0]}


async def test_rows_of_several_inputs_and_outputs_are_objects(serve: Serve) -> None:
    running = await serve(plus())
    rows = await predict(running, instances=[{"a": [1, 2], "b": 3}, {"a": [4, 5], "b": 6}])
    assert rows.json == {"predictions": [{"same": [1.0, 2.0], "twice": 6}, {"same": [4.0, 5.0], "twice": 12}]}
    columns = await predict(running, inputs={"b": [3], "a": [[1, 2]]})
    assert columns.json == {"outputs": {"same": [[1.0, 2.0]], "twice": [6]}}
    for wrong in (
        [[1, 2]],
        [{"a": [1, 2]}],
        [{"a": [1, 2], "b": 3, "c": 4}],
        [{"a": [1, 2], "b": 1}, {"a": [1, 2]}],
        [],
    ):
        assert (await predict(running, instances=wrong)).status == 400, wrong


async def test_an_output_without_a_row_for_each_instance_is_named(serve: Serve) -> None:
    running = await serve(rows_and_sum())
    refused = await predict(running, instances=[1, 2])
    assert refused.status == 400 and "'total'" in refused.error
    assert (await predict(running, inputs={"x": [1, 2]})).json == {"outputs": {"y": [-1.0, -2.0], "total": 3.0}}


async def test_texts_travel_as_they_are_and_bytes_in_base64(serve: Serve) -> None:
    dims: list[int | str] = ["n", 1]
    running = await serve(
        model([node("Identity", ["x"], ["y"])], [value("x", STRING, dims)], [value("y", STRING, dims)])
    )
    encoded = base64.b64encode("Ü".encode()).decode()
    answer = await predict(running, instances=[["plain"], [{"b64": encoded}]])
    assert answer.json == {"predictions": [["plain"], ["Ü"]]}
    for wrong in ([["x"], [1]], [[{"b64": "?"}]], [[{"b64": 1}]], [[{"b64": encoded, "more": 1}]], [[None]]):
        assert (await predict(running, instances=wrong)).status == 400, wrong


async def test_lone_texts_may_be_base64_too(serve: Serve) -> None:
    running = await serve(models.text())
    assert (await predict(running, instances=[{"b64": "YQ=="}, "b"])).json == {"predictions": ["a", "b"]}
    assert (await predict(running, instances=[{"x": "c"}])).json == {"predictions": ["c"]}


async def test_fp16_is_a_number_here_since_no_type_is_named(serve: Serve) -> None:
    running = await serve(models.half())
    assert (await predict(running, instances=[1.5])).json == {"predictions": [-1.5]}
    assert (await predict(running, instances=[1e5])).status == 400


async def test_nan_is_named_and_not_converted(serve: Serve) -> None:
    running = await serve(model([node("Log", ["x"], ["y"])], [value("x", FLOAT, ["n"])], [value("y", FLOAT, ["n"])]))
    answer = await predict(running, instances=[-1.0])
    assert answer.status == 500 and "NaN" in answer.error and "'y'" in answer.error


BAD_BODIES: dict[str, Any] = {
    "empty": b" ",
    "not JSON": b"hello",
    "a list": [],
    "nothing to predict": {},
    "null": {"instances": None},
    "both": {"instances": [1], "inputs": [1]},
    "a text": {"instances": "1"},
    "texts for numbers": {"instances": ["1"]},
    "bools for numbers": {"instances": [True]},
    "null for a number": {"instances": [None]},
    "another rank": {"instances": [[1.0]]},
    "ragged": {"instances": [[1.0], [2.0, 3.0]]},
    "lists beside numbers": {"instances": [1.0, [2.0]]},
    "another input": {"instances": [{"z": 1.0}]},
    "another column": {"inputs": {"z": [1.0]}},
    "no column": {"inputs": {}},
    "rows of two kinds": {"instances": [{"x": 1.0}, 2.0]},
    "more than FP32 has": {"instances": [1e39]},
    "NaN": b'{"instances": [NaN]}',
    "Infinity": b'{"instances": [1e999]}',
    "5000 digits": b'{"instances": [' + b"9" * 5000 + b"]}",
    "400 digits": b'{"instances": [' + b"9" * 400 + b"]}",
    "100 000 brackets": b'{"instances": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "40 dimensions": b'{"instances": ' + b"[" * 40 + b"1" + b"]" * 40 + b"}",
    "another signature": {"instances": [1], "signature_name": "other"},
    "a lone surrogate": b'{"instances": ["\\ud800"]}',
}


@pytest.mark.bad_input("infer-malformed")
@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
async def test_bad_input_is_400_with_a_reason_and_harms_nothing(double: Running, body: Any) -> None:
    answer = await double.post(body, PREDICT)
    assert answer.status == 400, answer.body
    assert answer.error and "Traceback" not in answer.error and len(answer.error) < 300
    assert (await predict(double, instances=[1.0])).json == {"predictions": [2.0]}


async def test_binary_data_is_not_for_v1(double: Running) -> None:
    answer = await double.post({"instances": [1.0]}, PREDICT, inference_header_content_length="5")
    assert answer.status == 400 and "/v2" in answer.error


async def test_models_are_listed_and_ready(double: Running) -> None:
    assert (await double.get("/v1/models")).json == {"models": [NAME]}
    assert (await double.get(f"/v1/models/{NAME}")).json == {"name": NAME, "ready": True}
    assert (await double.get(f"/v1/models/{NAME}/versions/7")).json == {"name": NAME, "ready": True}
    assert (await predict(double, f"/v1/models/{NAME}/versions/7:predict", instances=[1])).json == {
        "predictions": [2.0]
    }


@pytest.mark.parametrize("path", ["/v1/models/other:predict", f"/v1/models/{NAME}/versions/8:predict", f"{PREDICT}x"])
async def test_another_model_or_version_is_404(double: Running, path: str) -> None:
    assert (await predict(double, path, instances=[1])).status in (404, 405)
    assert (await double.get(path)).status == 404


async def test_a_prediction_is_posted(double: Running) -> None:
    answer = await double.get(PREDICT)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


async def test_a_loading_model_is_503(serve: Serve) -> None:
    loading = await serve(None)
    assert (await predict(loading, instances=[1])).status == 503
    assert (await loading.get(f"/v1/models/{NAME}")).status == 503


async def test_each_of_64_callers_at_once_gets_its_own_answer(double: Running) -> None:
    answers = await asyncio.gather(*(predict(double, instances=[n]) for n in range(64)))
    assert [answer.json["predictions"] for answer in answers] == [[2.0 * n] for n in range(64)]


SPECS = (TensorSpec("x", "FP32", (ANY, 2)), TensorSpec("t", "BYTES", None))
CODEC = V2Codec("m", "m-00001", Signature("test", SPECS, (TensorSpec("y", "FP32", (ANY,)),)), ServerLimits())
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "t", "b64", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(["instances", "inputs", "signature_name", "parameters", "x", "t"])


@pytest.mark.parametrize("dialect", [V1Codec(CODEC), GenerateCodec(CODEC)])
@given(body=st.dictionaries(KEYS, JSON_VALUES).map(msgspec.json.encode) | st.binary(max_size=100))
@settings(max_examples=300, deadline=None)
def test_odd_requests_are_decoded_or_refused(dialect: ProtocolCodec[Any], body: bytes) -> None:
    try:
        dialect.decode(body)
    except ServingError as error:
        assert error.status == 400
        assert "\n" not in str(error)
