"""Make the OpenAPI document of a served model from its signature. Pure.

The document is as precise as JSON Schema allows. It cannot express that the number of elements follows from the shape,
nor that 1.0 is not an integer. Nested data, binary tensors and `/versions/…` are described in prose.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from serving.engines.base.datatypes import BYTES, DATATYPES
from serving.engines.base.engine import ANY, Signature, TensorSpec
from serving.modelserver.codec.messages import metadata_shape
from serving.modelserver.endpoints.openapi_schemas import (
    ERROR,
    generate_request,
    generate_response,
    infer_request,
    infer_response,
    invocations_request,
    metadata,
    predict_request,
    predict_response,
)

Object: TypeAlias = dict[str, Any]

OPENAPI: Final = "3.1.0"
JSON: Final = "application/json"
EVENTS: Final[Object] = {"text/event-stream": {}}
"""A media type without a schema, as OpenAPI has none for streams before 3.2."""
DEFAULT_ERROR: Final = {"description": "An error", "content": {JSON: {"schema": {"$ref": ERROR}}}}
_READY: Final[Object] = {"type": "object", "required": ["ready"], "properties": {"ready": {"type": "boolean"}}}
_LIVE: Final[Object] = {"type": "object", "required": ["live"], "properties": {"live": {"const": True}}}
_BINARY_ALONE: Final = frozenset({"BF16", "FP16"})
"""Datatypes that JSON cannot express; such inputs accept FP32 as well."""
_MAX_EXAMPLE_SIZE: Final = 256  # elements of all inputs; a larger example is not useful
_LIMITS: Final = (
    "Requests may have a Content-Encoding of gzip. Inputs and outputs can be binary data, by the binary tensor data "
    "extension (Inference-Header-Content-Length). A request that accepts text/event-stream receives a stream of "
    "server-sent events. Each path also exists with /versions/VERSION after the model name."
)


def openapi_document(
    name: str, revision: str, signature: Signature, version: str, example: bytes | None = None,
    openai: Iterable[str] = (),
) -> Object:  # fmt: skip
    """Return the document of the model `name`.

    `version` is that of the server, `example` a request from the model files. `openai` are the paths of a language
    model whose engine answers them.
    """
    v1, v2 = f"/v1/models/{name}", f"/v2/models/{name}"
    return {
        "openapi": OPENAPI,
        "info": {"title": f"{name} ({revision})", "version": version, "description": _LIMITS},
        "servers": [{"url": "/"}],
        "paths": {
            "/": {"get": _get("paths", "The name of the model and its paths", _object("name", "paths"))},
            "/v2": {"get": _get("server", "Server metadata", _object("name", "version", "extensions"))},
            "/v2/health/live": {"get": _get("live", "Whether the server is live", _LIVE)},
            "/v2/health/ready": {"get": _get("ready", "Whether the server is ready", _READY)},
            v2: {"get": _get("metadata", "Model metadata: inputs and outputs", metadata(name, revision))},
            f"{v2}/ready": {"get": _get("modelReady", "Whether the model is ready", _READY)},
            "/v1/models": {"get": _get("models", "Names of the models", _object("models"))},
            v1: {"get": _get("modelReadyV1", "Whether the model is ready", _READY)},
            f"{v2}/infer": {
                "post": _post(
                    "infer",
                    "Inference by the Open Inference Protocol v2",
                    infer_request(signature),
                    {JSON: {"schema": infer_response(name, revision, signature)}, **EVENTS},
                    _own_example(example) or _made_example(signature.inputs),
                )
            },
            f"{v1}:predict": {
                "post": _post(
                    "predict",
                    "Inference by the v1 protocol",
                    predict_request(signature),
                    {JSON: {"schema": predict_response()}, **EVENTS},
                )
            },
            f"{v2}/generate": {
                "post": _post(
                    "generate",
                    "Inference with named values",
                    generate_request(signature),
                    {JSON: {"schema": generate_response(name, revision, signature)}, **EVENTS},
                )
            },
            "/invocations": {
                "post": _post(
                    "invocations",
                    "Inference by MLflow's scoring protocol",
                    invocations_request(),
                    {JSON: {"schema": _object("predictions")}},
                    error=_MLFLOW_ERROR,
                )
            },
            f"{v2}/generate_stream": {
                "post": _post(
                    "generateStream",
                    "Inference with named values, streamed as server-sent events",
                    generate_request(signature),
                    EVENTS,
                )
            },
            **{path: {"post": _of_engine(path)} for path in openai},
        },
        "components": {"schemas": {ERROR.rpartition("/")[2]: _object("error", error={"type": "string"})}},
    }


def _get(operation: str, summary: str, schema: Mapping[str, Any]) -> Object:
    response = {"description": summary, "content": {JSON: {"schema": schema}}}
    return {"operationId": operation, "summary": summary, "responses": {"200": response, "default": DEFAULT_ERROR}}


def _post(
    operation: str, summary: str, schema: Object, responses: Object, example: Object | None = None,
    error: Object = DEFAULT_ERROR,
) -> Object:  # fmt: skip
    body = {"schema": schema} if example is None else {"schema": schema, "example": example}
    return {
        "operationId": operation,
        "summary": summary,
        "requestBody": {"required": True, "content": {JSON: body}},
        "responses": {"200": {"description": "The response", "content": responses}, "default": error},
    }


def _of_engine(path: str) -> Object:
    """Return the operation of a path of OpenAI's or Anthropic's API, whose documentation has the members."""
    request = _object("model", model={"type": "string"})
    return _post(
        path.removeprefix("/").replace("/", "_"),
        "Passed on to the engine: see the documentation of OpenAI or Anthropic",
        request,
        {JSON: {"schema": {"type": "object"}}, **EVENTS},
        error={"description": "An error", "content": {JSON: {"schema": _object("error")}}},
    )


def _object(*required: str, **properties: Object) -> Object:
    return {"type": "object", "required": list(required), "properties": properties}


_MLFLOW_ERROR: Final = {
    "description": "An error",
    "content": {JSON: {"schema": {"anyOf": [_object("error_code", "message"), {"$ref": ERROR}]}}},
}
"""An error in MLflow's form, or one of the connection."""


def _own_example(content: bytes | None) -> Object | None:
    """Return the example from the model files, or None if it is missing or not a JSON object."""
    try:
        found = json.loads(content or b"null")
    except (ValueError, RecursionError):  # the warm-up validates it, which may be off
        return None
    return found if isinstance(found, dict) else None


def _made_example(specs: Sequence[TensorSpec]) -> Object | None:
    """Return a request of zeros, with 1 for variable sizes; None if it would be too long."""
    shapes = [[1 if size == ANY else size for size in metadata_shape(spec)] for spec in specs]
    if sum(math.prod(shape) for shape in shapes) > _MAX_EXAMPLE_SIZE:
        return None
    inputs = [
        {
            "name": spec.name,
            "datatype": "FP32" if spec.datatype in _BINARY_ALONE else spec.datatype,
            "shape": shape,
            "data": ["" if spec.datatype == BYTES else DATATYPES[spec.datatype].dtype.type(0).item()]
            * math.prod(shape),
        }
        for spec, shape in zip(specs, shapes, strict=True)
    ]
    return {"inputs": inputs}
