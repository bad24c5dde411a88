"""The OpenAPI document of a served model, made from its signature. Pure.

It says what is taken and given, as narrowly as JSON Schema can: not that data has as many elements as its shape, nor
that 1.0 is no integer. What is taken besides (nested data, binary tensors, `/versions/…`) is told in words.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
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
    metadata,
    predict_request,
    predict_response,
)

Object: TypeAlias = dict[str, Any]

OPENAPI: Final = "3.1.0"
JSON: Final = "application/json"
EVENTS: Final[Object] = {"text/event-stream": {}}
"""Without a schema: OpenAPI has none for a stream before 3.2."""
DEFAULT_ERROR: Final = {"description": "What went wrong", "content": {JSON: {"schema": {"$ref": ERROR}}}}
_READY: Final[Object] = {"type": "object", "required": ["ready"], "properties": {"ready": {"type": "boolean"}}}
_LIVE: Final[Object] = {"type": "object", "required": ["live"], "properties": {"live": {"const": True}}}
_BINARY_ALONE: Final = frozenset({"BF16", "FP16"})
"""Datatypes that JSON data cannot have; such inputs take FP32 too."""
_MOST_EXAMPLE: Final = 256  # elements of all inputs; a larger example helps nobody
_LIMITS: Final = (
    "A Content-Encoding of gzip is read. Inputs and outputs travel as binary data too, by the binary tensor data "
    "extension (Inference-Header-Content-Length). Who accepts text/event-stream gets the answer bit by bit. Each path "
    "is there with /versions/VERSION behind the model's name."
)


def openapi_document(
    name: str, revision: str, signature: Signature, version: str, example: bytes | None = None
) -> Object:
    """The document of the model `name`; `version` is the server's, `example` a request that the model came with."""
    v1, v2 = f"/v1/models/{name}", f"/v2/models/{name}"
    return {
        "openapi": OPENAPI,
        "info": {"title": f"{name} ({revision})", "version": version, "description": _LIMITS},
        "servers": [{"url": "/"}],
        "paths": {
            "/": {"get": _get("paths", "The model's name and its paths, below this address", _object("name", "paths"))},
            "/v2": {"get": _get("server", "The server", _object("name", "version", "extensions"))},
            "/v2/health/live": {"get": _get("live", "Whether the server lives", _LIVE)},
            "/v2/health/ready": {"get": _get("ready", "Whether the server is ready", _READY)},
            v2: {"get": _get("metadata", "The model's inputs and outputs", metadata(name, revision))},
            f"{v2}/ready": {"get": _get("modelReady", "Whether the model is ready", _READY)},
            "/v1/models": {"get": _get("models", "The names of models", _object("models"))},
            v1: {"get": _get("modelReadyV1", "Whether the model is ready", _READY)},
            f"{v2}/infer": {"post": _infer(name, revision, signature, example)},
            f"{v1}:predict": {"post": _predict(signature)},
            f"{v2}/generate": {"post": _generate(name, revision, signature)},
            f"{v2}/generate_stream": {"post": _generate_stream(signature)},
        },
        "components": {"schemas": {ERROR.rpartition("/")[2]: _object("error", error={"type": "string"})}},
    }


def _infer(name: str, revision: str, signature: Signature, own: bytes | None) -> Object:
    return _post(
        "infer",
        "An inference by the Open Inference Protocol v2",
        infer_request(signature),
        {JSON: {"schema": infer_response(name, revision, signature)}, **EVENTS},
        _own_example(own) or _made_example(signature.inputs),
    )


def _predict(signature: Signature) -> Object:
    answers = {JSON: {"schema": predict_response()}, **EVENTS}
    return _post("predict", "An inference by the v1 protocol", predict_request(signature), answers)


def _generate(name: str, revision: str, signature: Signature) -> Object:
    answers = {JSON: {"schema": generate_response(name, revision, signature)}, **EVENTS}
    return _post("generate", "An inference by names", generate_request(signature), answers)


def _generate_stream(signature: Signature) -> Object:
    return _post("generateStream", "The same, bit by bit as server-sent events", generate_request(signature), EVENTS)


def _get(operation: str, summary: str, schema: Mapping[str, Any]) -> Object:
    answer = {"description": summary, "content": {JSON: {"schema": schema}}}
    return {"operationId": operation, "summary": summary, "responses": {"200": answer, "default": DEFAULT_ERROR}}


def _post(operation: str, summary: str, schema: Object, answers: Object, example: Object | None = None) -> Object:
    body = {"schema": schema} if example is None else {"schema": schema, "example": example}
    return {
        "operationId": operation,
        "summary": summary,
        "requestBody": {"required": True, "content": {JSON: body}},
        "responses": {"200": {"description": "The answer", "content": answers}, "default": DEFAULT_ERROR},
    }


def _object(*required: str, **properties: Object) -> Object:
    return {"type": "object", "required": list(required), "properties": properties}


def _own_example(content: bytes | None) -> Object | None:
    """Return the model's own example, None without one or for one that is no JSON object."""
    try:
        found = json.loads(content or b"null")
    except (ValueError, RecursionError):  # not checked by a server that did not warm up
        return None
    return found if isinstance(found, dict) else None


def _made_example(specs: Sequence[TensorSpec]) -> Object | None:
    """Return a request of zeros, with size 1 where a size varies; None when it would be long."""
    shapes = [[1 if size == ANY else size for size in metadata_shape(spec)] for spec in specs]
    if sum(math.prod(shape) for shape in shapes) > _MOST_EXAMPLE:
        return None
    inputs = [
        {
            "name": spec.name,
            "datatype": "FP32" if spec.datatype in _BINARY_ALONE else spec.datatype,
            "shape": shape,
            "data": [_zero(spec.datatype)] * math.prod(shape),
        }
        for spec, shape in zip(specs, shapes, strict=True)
    ]
    return {"inputs": inputs}


def _zero(datatype: str) -> Any:
    if datatype == BYTES:
        return ""
    return DATATYPES[datatype].dtype.type(0).item()
