"""Build an example request for a model: its `example.json` from its OpenAPI document, else zeros."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from clusters.base.errors import NotFound
from serving.client.effects import Call, HttpRequest, exchange
from serving.client.errors import ClientError
from serving.client.inference.ingress import IngressTarget

MAX_ELEMENTS = 1 << 20  # zeros in a request; for larger inputs callers must write their own
_ZEROS: Mapping[str, Any] = {"BYTES": "", "BOOL": False} | dict.fromkeys(("BF16", "FP16", "FP32", "FP64"), 0.0)
"""The zero of each data type; 0 for the others."""


def example_request(entrance: IngressTarget, name: str, timeout: float) -> Call[str]:
    """Return an inference request for the model `name`, as JSON in ASCII on one line.

    It is the model's `example.json`, or zeros with the shapes of its metadata. Raises Unreachable, NotFound when the
    model does not exist, ClientError when there is no example.
    """
    page = yield from read_json(entrance, name, "/openapi.json", timeout)
    try:
        content = page["paths"][f"/v2/models/{name}/infer"]["post"]["requestBody"]["content"]["application/json"]
    except (KeyError, TypeError):
        content = {}
    found = content.get("example") or zeros((yield from read_json(entrance, name, f"/v2/models/{name}", timeout)))
    if not isinstance(found, dict):
        raise ClientError(f"model {name} has no example request: `knodel predict {name} -d @FILE` sends your own")
    return json.dumps(found)


def zeros(metadata: Any) -> dict[str, Any] | None:
    """Return a request of zeros for the inputs in a model's metadata, with size 1 for variable dimensions. Pure.

    Return None for invalid metadata, or for more than `MAX_ELEMENTS` elements.
    """
    try:
        inputs = [
            (
                str(one["name"]),
                str(one["datatype"]),
                [max(1, int(size)) if size < 0 else int(size) for size in one["shape"]],
            )
            for one in metadata["inputs"]
        ]
    except (KeyError, TypeError, ValueError):
        return None
    if sum(math.prod(shape) for _, _, shape in inputs) > MAX_ELEMENTS:
        return None
    return {
        "inputs": [
            {"name": name, "datatype": datatype, "shape": shape, "data": [_ZEROS.get(datatype, 0)] * math.prod(shape)}
            for name, datatype, shape in inputs
        ]
    }


def read_json(entrance: IngressTarget, name: str, path: str, timeout: float) -> Call[Any]:
    """Return the JSON document at `path` of the model `name`. Raises Unreachable, NotFound, ClientError."""
    answer = yield from exchange(HttpRequest(entrance.endpoint, "GET", path, entrance.headers, None, timeout))
    if answer.status == 404:
        raise NotFound(f"model {name} responded with 404 at {path}: `knodel get {name}` shows whether it exists")
    if answer.status != 200:
        raise ClientError(f"model {name} responded with {answer.status} at {path}: `knodel get {name}` shows its state")
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError) as error:
        raise ClientError(
            f"the response of model {name} at {path} is not JSON: `knodel predict {name} -d @FILE` sends your request"
        ) from error
