"""An example request of a model: from its OpenAPI document, which shows its `example.json`, else zeros."""

from __future__ import annotations

import json
import math
from typing import Any

from clusters.base.errors import NotFound
from serving.cli.base.errors import CommandError
from serving.cli.client.http import exchange
from serving.cli.ingress import Entrance

MOST_ELEMENTS = 1 << 20  # of zeros; larger inputs take a request of the caller's own
_FLOATS = frozenset({"BF16", "FP16", "FP32", "FP64"})


def example_request(entrance: Entrance, name: str, timeout: float) -> str:
    """Return an inference request of the model NAME as JSON in ASCII on one line.

    It is the model's own `example.json`, or zeros of the shapes in its metadata. Raises Unreachable, NotFound for a
    model that is not there, CommandError when there is no example.
    """
    page = _read(entrance, name, "/openapi.json", timeout)
    try:
        content = page["paths"][f"/v2/models/{name}/infer"]["post"]["requestBody"]["content"]["application/json"]
    except (KeyError, TypeError):
        content = {}
    found = content.get("example") or zeros(_read(entrance, name, f"/v2/models/{name}", timeout))
    if not isinstance(found, dict):
        raise CommandError(
            f"model {name} gives no example request: `knodel predict {name} -d @FILE` sends one of yours"
        )
    return json.dumps(found)


def zeros(metadata: Any) -> dict[str, Any] | None:
    """Return a request of zeros for a model's metadata, with size 1 where a size varies. Pure.

    None for metadata that is not understood, or for more than `MOST_ELEMENTS` elements.
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
    if sum(math.prod(shape) for _, _, shape in inputs) > MOST_ELEMENTS:
        return None
    return {
        "inputs": [
            {"name": name, "datatype": datatype, "shape": shape, "data": [_zero(datatype)] * math.prod(shape)}
            for name, datatype, shape in inputs
        ]
    }


def _zero(datatype: str) -> Any:
    if datatype == "BYTES":
        return ""
    if datatype == "BOOL":
        return False
    return 0.0 if datatype in _FLOATS else 0


def _read(entrance: Entrance, name: str, path: str, timeout: float) -> Any:
    with exchange(entrance.endpoint, "GET", path, headers=dict(entrance.headers), timeout=timeout) as answer:
        content = answer.body()
    if answer.status == 404:
        raise NotFound(f"model {name} answered 404 at {path}: `knodel get {name}` shows whether it is there")
    if answer.status != 200:
        raise CommandError(f"model {name} answered {answer.status} at {path}: `knodel get {name}` shows its state")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CommandError(
            f"model {name} gave no JSON at {path}: `knodel predict {name} -d @FILE` sends yours"
        ) from error
