"""The OpenAPI document is valid, and matches the behaviour of the server."""

from __future__ import annotations

from typing import Any

import pytest

from serving.engines.base.datatypes import DATATYPES
from serving.engines.base.engine import ANY, Signature, TensorSpec
from serving.modelserver.endpoints.openapi import openapi_document
from tests.serving.modelserver.client import tensor
from tests.serving.modelserver.conftest import NAME, REVISION, Running, Serve
from tests.support import models

V1, V2 = f"/v1/models/{NAME}", f"/v2/models/{NAME}"


def schema(page: Any, path: str, method: str, status: str | None = None) -> Any:
    """Return the schema of the JSON request, or of the response."""
    operation = page["paths"][path][method]
    part = operation["requestBody"] if status is None else operation["responses"][status]
    found = part["content"]["application/json"]["schema"]
    return {**found, "components": page["components"]}


def validate(page: Any) -> None:
    """Check the document by the schema of OpenAPI."""
    from openapi_spec_validator import validate as by_schema  # an import of a second, which all workers would pay

    by_schema(page)


def agrees(page: Any, value: Any, path: str, method: str, status: str | None = None) -> bool:
    from jsonschema import Draft202012Validator

    return bool(Draft202012Validator(schema(page, path, method, status)).is_valid(value))


async def test_the_document_is_valid_and_names_each_path(double: Running) -> None:
    answer = await double.get("/openapi.json")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    page = answer.json
    validate(page)
    assert page["info"]["title"] == f"{NAME} ({REVISION})"
    for path, methods in page["paths"].items():
        if "get" in methods:
            answer = await double.get(path)
            assert answer.status == 200
            assert agrees(page, answer.json, path, "get", "200"), path


@pytest.mark.parametrize("shape", [None, (), (3,), (2, ANY, 4)])
def test_a_document_of_any_signature_is_valid(shape: tuple[int, ...] | None) -> None:
    specs = tuple(TensorSpec(f"of {datatype}", datatype, shape) for datatype in sorted(DATATYPES))
    for signature in (Signature("test", specs, specs), Signature("test", specs[:1], specs[:1])):
        validate(openapi_document("m", "m-00001", signature, "0.1.0"))


async def test_the_example_is_answered_and_the_answer_is_as_described(double: Running) -> None:
    page = (await double.get("/openapi.json")).json
    example = page["paths"][f"{V2}/infer"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert agrees(page, example, f"{V2}/infer", "post")
    answer = await double.post(example)
    assert answer.status == 200
    assert agrees(page, answer.json, f"{V2}/infer", "post", "200")


@pytest.mark.parametrize(
    ("own", "shown"),
    [
        (b'{"inputs": [1]}', {"inputs": [1]}),
        (b"no JSON", {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [0.0]}]}),
        (b"[]", {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [0.0]}]}),
    ],
)
def test_the_models_own_example_is_shown_if_it_is_one(own: bytes, shown: Any) -> None:
    specs = (TensorSpec("x", "FP32", (1,)),)
    page = openapi_document(NAME, REVISION, Signature("test", specs, specs), "0.1.0", own)
    assert page["paths"][f"{V2}/infer"]["post"]["requestBody"]["content"]["application/json"]["example"] == shown


@pytest.mark.parametrize(("datatype", "sent"), [("FP64", "FP64"), ("FP32", "FP32"), ("FP16", "FP32"), ("INT8", "INT8")])
def test_a_made_example_has_the_datatype_of_the_metadata_where_json_has_it(datatype: str, sent: str) -> None:
    specs = (TensorSpec("x", datatype, (1,)),)
    page = openapi_document(NAME, REVISION, Signature("test", specs, specs), "0.1.0")
    content = page["paths"][f"{V2}/infer"]["post"]["requestBody"]["content"]["application/json"]
    assert content["example"]["inputs"][0]["datatype"] == sent


REQUESTS: list[tuple[str, Any, bool]] = [
    (f"{V2}/infer", {"inputs": [tensor([1.0])], "id": "1", "outputs": [{"name": "y"}]}, True),
    (f"{V2}/infer", {"inputs": [tensor([1], "FP64")]}, True),
    (f"{V2}/infer", {"inputs": [tensor([1e39])]}, False),
    (f"{V2}/infer", {"inputs": [tensor(["1"])]}, False),
    (f"{V2}/infer", {"inputs": [tensor([1.0], "INT32")]}, False),
    (f"{V2}/infer", {"inputs": [tensor([1.0], shape=[1, 1])]}, False),
    (f"{V2}/infer", {"inputs": [tensor([1.0], name="z")]}, False),
    (f"{V2}/infer", {"inputs": []}, False),
    (f"{V2}/infer", {"inputs": [tensor([1.0])], "outputs": [{"name": "z"}]}, False),
    (f"{V2}/infer", {"inputs": [tensor([1.0])], "parameters": {"classification": 1}}, False),
    (f"{V1}:predict", {"instances": [1, 2.5]}, True),
    (f"{V1}:predict", {"instances": [{"x": 1}, {"x": 2.5}]}, True),
    (f"{V1}:predict", {"instances": [{"z": 1}]}, False),
    (f"{V1}:predict", {"inputs": {"x": [1]}}, True),
    (f"{V1}:predict", {"inputs": [1, 2.5]}, True),
    (f"{V1}:predict", {"inputs": []}, True),
    (f"{V1}:predict", {"inputs": [[1]]}, False),
    (f"{V1}:predict", {"instances": [[1]]}, False),
    (f"{V1}:predict", {"instances": [True]}, False),
    (f"{V1}:predict", {"instances": [1], "inputs": {"x": [1]}}, False),
    (f"{V2}/generate", {"x": 1.5}, True),
    (f"{V2}/generate", {"x": [1, 2], "parameters": {"temperature": 0}}, True),
    (f"{V2}/generate", {"x": "1"}, False),
    (f"{V2}/generate", {"z": 1}, False),
    (f"{V2}/generate", {"x": 1, "z": 1, "stream": False}, True),
    (f"{V2}/generate", {"x": 1, "z": [1]}, False),
    (f"{V2}/generate", {"x": 1, "shared_memory_region": "a"}, False),
]


@pytest.mark.parametrize(("path", "body", "good"), REQUESTS)
async def test_the_server_takes_what_the_document_takes(double: Running, path: str, body: Any, good: bool) -> None:
    page = (await double.get("/openapi.json")).json
    answer = await double.post(body, path)
    assert agrees(page, body, path, "post") is good
    assert answer.status == (200 if good else 400), answer.body
    assert agrees(page, answer.json, path, "post", "200" if good else "default")


async def test_a_model_without_a_document_is_loading(serve: Serve) -> None:
    assert (await (await serve(None)).get("/openapi.json")).status == 503


async def test_generate_answers_by_names(serve: Serve) -> None:
    running = await serve(models.text())
    answer = await running.post({"x": "hello"}, f"{V2}/versions/7/generate")
    assert answer.json == {"model_name": NAME, "model_version": REVISION, "y": "hello"}
    several = await running.post({"x": ["a", "b"]}, f"{V2}/generate")
    assert several.json["y"] == ["a", "b"]
