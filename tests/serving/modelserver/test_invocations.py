"""MLflow's scoring protocol on `/invocations`, as clients of MLflow's own server see it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving.engines.base.engine import ANY, Signature, TensorSpec
from serving.modelserver.base.errors import ContentTooLarge, InvalidRequest, ModelFailed, ServingError
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.codec.protocol_invocations import InvocationsCodec
from serving.modelserver.codec.protocol_v2 import V2Codec
from serving.modelserver.execution.mlflow_example import mlflow_example
from serving.modelserver.observe.middleware import protocol_of
from serving.modelserver.observe.response_stats import outcome_of
from serving.storage.base.artifact import Artifact
from tests.serving.modelserver.client import ask, request
from tests.serving.modelserver.conftest import Running, Serve
from tests.support import models

PATH = "/invocations"
LIST = (TensorSpec("output-0", "INT64", (ANY,)),)
NAMED = (TensorSpec("label", "INT64", (ANY,)), TensorSpec("score", "FP64", (ANY, 1)))
COLUMNS = (TensorSpec("a", "FP64", (ANY,)), TensorSpec("n", "INT64", (ANY,)), TensorSpec("t", "BYTES", (ANY,)))
MATRIX = (TensorSpec("input-0", "FP64", (ANY, 2)),)
ROWS = [[1.5, 2, "x"], [3, 4, "y"]]
EXPECTED = {"a": [1.5, 3.0], "n": [2, 4], "t": ["x", "y"]}


def codec(
    inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...] = LIST, csv: bool = False, *optional: str
) -> InvocationsCodec:
    signature = Signature("test", inputs, outputs, optional_inputs=frozenset(optional))
    return InvocationsCodec(V2Codec("m", "m-00001", signature, ServerLimits()), csv)


def decoded(made: InvocationsCodec, request: Any) -> dict[str, Any]:
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    return {name: tensor.tolist() for name, tensor in made.decode(body).inputs.items()}


@pytest.mark.parametrize(
    "request_",
    [
        {"dataframe_split": {"columns": ["a", "n", "t"], "data": ROWS, "index": [7, 8]}},
        {"dataframe_split": {"columns": ["t", "z", "n", "a"], "data": [["x", None, 2.0, 1.5], ["y", 1, 4, 3]]}},
        {"dataframe_records": [{"a": 1.5, "n": 2, "t": "x"}, {"t": "y", "n": 4, "a": 3}]},
        {"instances": [{"a": 1.5, "n": 2, "t": "x", "z": 1}, {"a": 3, "n": 4, "t": "y"}], "params": {"k": 1}},
        {"inputs": {"a": [1.5, 3], "n": [2, 4], "t": ["x", "y"]}, "params": None},
    ],
)
def test_each_form_gives_the_columns_by_name(request_: Any) -> None:
    assert decoded(codec(COLUMNS), request_) == EXPECTED


def test_csv_has_the_types_of_the_model() -> None:
    assert decoded(codec(COLUMNS, LIST, True), b'z,t,n,a\r\n0,x,2,1.5\r\n,"y",4,3\r\n') == EXPECTED
    assert decoded(codec(MATRIX, LIST, True), b"p,q\n1,2\n3,4e0\n") == {"input-0": [[1.0, 2.0], [3.0, 4.0]]}
    ((missing, whole),) = decoded(codec(MATRIX, LIST, True), b"p,q\nNA,2\n")["input-0"]
    assert math.isnan(missing) and whole == 2.0


def test_single_values_by_name_are_one_row() -> None:
    assert decoded(codec(COLUMNS), {"inputs": {"a": 1, "n": 2, "t": "x"}}) == {"a": [1.0], "n": [2], "t": ["x"]}


def test_a_matrix_gets_all_columns_in_their_order_and_null_is_nan() -> None:
    for sent in (
        {"dataframe_split": {"columns": ["p", "q"], "data": [[1, 2]]}},
        {"dataframe_split": {"data": [[1, 2]]}},
        {"dataframe_records": [{"p": 1, "q": 2}]},
        {"instances": [[1, 2]]},
        {"inputs": [[1, 2]]},
        {"inputs": {"input-0": [[1, 2]]}},
    ):
        assert decoded(codec(MATRIX), sent) == {"input-0": [[1.0, 2.0]]}
    ((value, _),) = decoded(codec(MATRIX), {"instances": [[None, 2]]})["input-0"]
    assert math.isnan(value)


def test_a_matrix_whose_columns_have_names_gets_them_in_the_order_of_the_training() -> None:
    made = codec((TensorSpec("input-0", "FP64", (ANY, 2), ("p", "q")),))
    for sent in (
        {"dataframe_split": {"columns": ["q", "z", "p"], "data": [[2, 9, 1]]}},
        {"dataframe_records": [{"q": 2, "p": 1}]},
        {"inputs": [[1, 2]]},
    ):
        assert decoded(made, sent) == {"input-0": [[1.0, 2.0]]}
    spaced = codec((TensorSpec("input-0", "FP64", (ANY, 2), ("p_1", "q")),))
    assert decoded(spaced, {"dataframe_records": [{"q": 2, "p 1": 1}]}) == {"input-0": [[1.0, 2.0]]}
    both = {"columns": ["p 1", "p_1", "q"], "data": [[9, 1, 2]]}
    assert decoded(spaced, {"dataframe_split": both}) == {"input-0": [[1.0, 2.0]]}
    with pytest.raises(InvalidRequest, match="no column 'p'; it has 'r', which the model does not have"):
        made.decode(b'{"dataframe_records": [{"q": 2, "r": 1}]}')


def test_one_text_column_may_have_another_name() -> None:
    made = codec((TensorSpec("text", "BYTES", (ANY,)),))
    assert decoded(made, {"dataframe_split": {"columns": ["review"], "data": [["good"]]}}) == {"text": ["good"]}


def test_a_column_becomes_a_matrix_where_the_model_expects_one() -> None:
    made = codec((TensorSpec("a", "FP32", (ANY, 1)), TensorSpec("b", "FP32", (ANY, 1))))
    assert decoded(made, {"dataframe_records": [{"a": 1, "b": 2}]}) == {"a": [[1.0]], "b": [[2.0]]}


def test_params_are_optional_inputs() -> None:
    specs = (*MATRIX, TensorSpec("k", "INT64", None), TensorSpec("names", "BYTES", None))
    made = codec(specs, LIST, False, "k", "names")
    assert decoded(made, {"inputs": [[1, 2]]}) == {"input-0": [[1.0, 2.0]]}
    found = decoded(made, {"inputs": [[1, 2]], "params": {"k": 3, "names": ["a"], "other": 1}})
    assert found == {"input-0": [[1.0, 2.0]], "k": 3, "names": ["a"]}


@pytest.mark.parametrize(
    ("inputs", "outputs", "request_", "predictions"),
    [
        (MATRIX, LIST, {"instances": [[1, 2]]}, [7]),
        (MATRIX, NAMED, {"instances": [[1, 2]]}, {"label": [7], "score": [[0.5]]}),
        (MATRIX, NAMED, {"dataframe_split": {"data": [[1, 2]]}}, {"label": [7], "score": [[0.5]]}),
        (MATRIX, NAMED[1:], {"inputs": [[1, 2]]}, {"score": [[0.5]]}),
        (COLUMNS[:2], LIST, {"dataframe_records": [{"a": 1, "n": 2}]}, [7]),
        (COLUMNS[:2], NAMED, {"inputs": {"a": [1], "n": [2]}}, {"label": [7], "score": [[0.5]]}),
        (COLUMNS[:2], NAMED, {"dataframe_records": [{"a": 1, "n": 2}]}, [{"label": 7, "score": 0.5}]),
    ],
)
def test_outputs_without_names_are_lists_and_named_ones_objects(
    inputs: Any, outputs: Any, request_: Any, predictions: Any
) -> None:
    made = codec(inputs, outputs)
    results = {"output-0": np.array([7]), "label": np.array([7]), "score": np.array([[0.5]])}
    call = made.decode(json.dumps(request_).encode())
    body = made.encode(call, [results[spec.name] for spec in outputs]).body
    assert json.loads(body) == {"predictions": predictions}


def test_nan_is_null_in_a_response_and_infinity_the_models_fault() -> None:
    made = codec(MATRIX, (TensorSpec("output-0", "FP32", (ANY, 2)),))
    call = made.decode(b'{"inputs": [[1, 2]]}')
    body = made.encode(call, [np.array([[1.5, np.nan]], np.float32)]).body
    assert body == b'{"predictions":[[1.5,null]]}'
    for values in ([1.0, np.inf], [np.nan, -np.inf]):
        with pytest.raises(ModelFailed):
            made.encode(call, [np.array([values])])


@pytest.mark.bad_input("infer-malformed", "infer-tensors")
@pytest.mark.parametrize(
    ("specs", "body", "message"),
    [
        (COLUMNS, b"[]", "not a JSON object"),
        (COLUMNS, b"{}", "a request must have one of dataframe_split, dataframe_records, instances, inputs"),
        (COLUMNS, b'{"messages": []}', "it has 'messages'"),
        (COLUMNS, b'{"inputs": [], "instances": []}', "it has 'inputs', 'instances'"),
        (COLUMNS, b'{"dataframe_split": [], "dataframe_split": []}', "twice"),
        (COLUMNS, b'{"dataframe_records": [{"a": 1, "a": 2}]}', "twice"),
        (COLUMNS, b'{"dataframe_split": []}', "dataframe_split must be an object with data"),
        (COLUMNS, b'{"dataframe_split": {"data": [], "more": 1}}', "dataframe_split must be an object with data"),
        (COLUMNS, b'{"dataframe_split": {"data": [[1]], "columns": "a"}}', "not a list of names"),
        (COLUMNS, b'{"dataframe_split": {"data": [[1, 1]], "columns": ["a", "a"]}}', "a name twice"),
        (COLUMNS, b'{"dataframe_split": {"data": [[1], [1, 2]], "columns": ["a"]}}', "row 1 of dataframe_split"),
        (COLUMNS, b'{"dataframe_split": {"data": [[1, 2, 3]]}}', "dataframe_split has no columns: name them"),
        (COLUMNS, b'{"dataframe_records": {"a": 1}}', "dataframe_records must be a list of objects"),
        (COLUMNS, b'{"dataframe_records": [1]}', "dataframe_records must be a list of objects"),
        (COLUMNS, b'{"instances": [[1, 2, 3]]}', "send each row as an object"),
        (COLUMNS, b'{"inputs": {"x": [1]}}', "inputs has none of the inputs 'a', 'n', 't': it has 'x'"),
        (COLUMNS, b'{"inputs": {"a": [1]}}', "missing input 'n', 't'"),
        (COLUMNS, b'{"dataframe_records": [{"a": 1, "m": 2, "t": "x"}]}', "no column 'n'; it has 'm', which the model"),
        (COLUMNS, b'{"dataframe_records": [{"a": 1, "n": 2.5, "t": "x"}]}', "input 'n'"),
        (COLUMNS, b'{"dataframe_records": [{"a": "1", "n": 2, "t": "x"}]}', "input 'a'"),
        (COLUMNS, b'{"dataframe_records": [{"a": 1, "n": null, "t": "x"}]}', "input 'n' has a missing value"),
        (COLUMNS, b'{"dataframe_records": [{"a": 1, "n": 2, "t": null}]}', "input 't' has a missing value"),
        (MATRIX, b'{"inputs": [[1, 2], [3]]}', "different lengths"),
        (MATRIX, b'{"inputs": [[1, 2, 3]]}', "the model expects [-1, 2]"),
        (MATRIX, b'{"inputs": [[1, 2]], "params": []}', "params is not an object"),
        (MATRIX, b'{"inputs": [[1, NaN]]}', "not a JSON object"),
        (MATRIX, b'{"inputs": ' + b"[" * 900 + b"null" + b"]" * 900 + b"}", "input 'input-0' has too many levels"),
        (COLUMNS, b'{"inputs": {"n": ' + b"[" * 900 + b"1.0" + b"]" * 900 + b"}}", "input 'n' has too many levels"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_name(specs: Any, body: bytes, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        codec(specs).decode(body)
    assert message in str(caught.value)


@pytest.mark.bad_input("infer-malformed")
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no rows"), (b"a,n,t\n", "no rows"), (b"a,n,t\n1,2\n", "line 2 of the CSV has 2 values"),
        (b"a,a\n1,2\n", "a name twice"), (b'a\n"1', "not CSV"), (b"a\n\xff", "not CSV in UTF-8"),
        (b"a,n\n1,2\n", "no column 't'"), (b"a,n,t\nx,2,y\n", "input 'a'"), (b"a,n,t\n1,1.5,y\n", "input 'n'"),
        (b"a,n,t\n1_0,1,y\n", "input 'a'"), (b"a,n,t\n" + b"9" * 200_000 + b",1,y\n", "not CSV"),
    ],
)  # fmt: skip
def test_bad_csv_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(ServingError) as caught:
        codec(COLUMNS, LIST, True).decode(body)
    assert message in str(caught.value) and caught.value.status == 400


def test_frames_have_a_limit_of_values() -> None:
    v2 = V2Codec("m", "m-00001", Signature("test", MATRIX, LIST), ServerLimits(json_numbers=10))
    for end in (b"\n", b"\r\n", b"\r"):
        with pytest.raises(ContentTooLarge, match="more than 10 values"):
            InvocationsCodec(v2, True).decode(b"p" + end + (b"1" + end) * 10)
    names = json.dumps({"dataframe_records": [{"a": 1}, {"b": 1}, {"c": 1}, {"d": 1}]}).encode()  # 16 cells
    with pytest.raises(ContentTooLarge, match="4 rows and 4 different names, more than 10 values"):
        InvocationsCodec(v2).decode(names)


async def test_a_model_of_any_format_answers_with_its_names(double: Running) -> None:
    answer = await double.post({"dataframe_split": {"columns": ["x"], "data": [[1], [2.5]]}}, PATH)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json == {"predictions": [{"y": 2.0}, {"y": 5.0}]}
    assert (await double.post(b"x\n1\n2.5\n", PATH, content_type="text/csv")).json == answer.json
    assert (await double.post({"inputs": [1]}, PATH)).json == {"predictions": {"y": [2.0]}}
    assert (await double.get("/")).json["paths"]["invocations"] == PATH


async def test_errors_have_mlflows_form(double: Running) -> None:
    refused = await double.post({"dataframe_records": [{"z": 1, "q": 2}]}, PATH)
    assert refused.status == 400
    assert refused.json == {"error_code": "BAD_REQUEST", "message": "the model has one input, 'x': send one column"}
    other = await double.post(b"x", PATH, content_type="application/vnd.apache.parquet")
    assert (other.status, other.json["error_code"]) == (415, "BAD_REQUEST")
    wrong = await double.get(PATH)
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")


async def test_the_server_is_checked_as_mlflows(double: Running) -> None:
    for path in ("/ping", "/health"):
        answer = await double.get(path)
        assert (answer.status, answer.body) == (200, b"\n")
    assert (await double.get("/version")).headers["content-type"].startswith("text/plain")


async def test_its_requests_count_for_metrics_and_for_the_judge(double: Running) -> None:
    protocol = protocol_of("POST", PATH)
    assert (protocol, outcome_of(protocol, 200), outcome_of(protocol, 500)) == ("mlflow", "timed", "error")
    assert (await double.post({"inputs": [1]}, PATH)).status == 200
    page = (await ask(double.management_port, request("GET", "/metrics"))).body.decode()
    assert 'protocol="mlflow"' in page


async def test_without_memory_for_its_body_it_is_refused_in_mlflows_form(serve: Serve) -> None:
    running = await serve(models.double(), limits=ServerLimits(body_memory=1))
    answer = await running.post(b'{"inputs": [1]}'.ljust(1 << 17), PATH)
    assert (answer.status, answer.json["error_code"]) == (429, "REQUEST_LIMIT_EXCEEDED")
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"serving_input_example.json": {"dataframe_split": {"columns": ["p", "q"], "data": [[1, 2]]}}}, [1.0, 2.0]),
        ({"input_example.json": {"columns": ["p", "q"], "data": [[1, 2]]}}, [1.0, 2.0]),
        ({"input_example.json": {"inputs": {"columns": ["p", "q"], "data": [[1, 2]]}, "params": {"k": 1}}}, [1.0, 2.0]),
        ({"input_example.json": {"inputs": [[1, 2]]}}, [1.0, 2.0]),
        ({"input_example.json": [[1, 2]]}, [1.0, 2.0]),
        ({"input_example.json": {"input-0": [[1, 2]]}}, [1.0, 2.0]),
        ({"input_example.json": [["x", 2]]}, None),
        ({"input_example.json": "x"}, None),
        ({}, None),
    ],
)
def test_an_input_example_of_mlflow_becomes_a_request(tmp_path: Path, files: Any, expected: Any) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name, content in {"MLmodel": {}, **files}.items():
        (folder / name).write_text(json.dumps(content))
    made = V2Codec("m", "m-00001", Signature("test", MATRIX, LIST), ServerLimits())
    found = mlflow_example(Artifact(tmp_path, None), made)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert made.decode(found).inputs["input-0"].tolist() == [expected]
