"""Encode requests and decode responses of the Open Inference Protocol, with its binary tensor data extension. Pure.

Source: Triton, protocol/extension_binary_data.md; KServe, Open Inference Protocol, "Binary Tensor Data Extension".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from knodel.inference.inputs import InputTensor
from knodel.inference.metadata import MALFORMED
from knodel.results.prediction import PredictionOutput
from serving.client.errors import ClientError, UsageError
from serving.client.http import FOREIGN

JSON_LENGTH = "Inference-Header-Content-Length"


def encode(
    inputs: Sequence[InputTensor], outputs: Sequence[str] | None, parameters: Mapping[str, Any] | None, id: str
) -> tuple[dict[str, str], bytes]:
    """Return headers and body of a request; arrays are binary, lists JSON.

    `outputs` are the names of the wanted outputs, None for all. Raises UsageError for parameters that are not JSON.
    """
    blobs: list[bytes] = []
    made: list[dict[str, Any]] = []
    for name, datatype, shape, values in inputs:
        about: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(shape)}
        if isinstance(values, list):
            made.append({**about, "data": values})
        else:
            from serving.engines.base.binary import to_bytes  # needs NumPy, which an array has
            from serving.engines.base.datatypes import DATATYPES

            blobs.append(to_bytes(values, DATATYPES[datatype]))
            made.append({**about, "parameters": {"binary_data_size": len(blobs[-1])}})
    is_binary = bool(blobs)
    request: dict[str, Any] = {"id": id} if id else {}
    request["inputs"] = made
    if outputs is not None:
        request["outputs"] = [{"name": name} for name in outputs]
    if given := {**({"binary_data_output": True} if is_binary else {}), **(parameters or {})}:
        request["parameters"] = given
    head = to_json(request)
    if not is_binary:
        return {"Content-Type": "application/json"}, head
    headers = {"Content-Type": "application/octet-stream", JSON_LENGTH: str(len(head))}
    return headers, b"".join([head, *blobs])


def to_json(request: Mapping[str, Any]) -> bytes:
    """Return a request as JSON. Raises UsageError for values that JSON cannot hold, such as arrays."""
    try:
        return json.dumps(request).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the request is not JSON ({error}): give numbers, strings, lists and dicts") from error


def decode(name: str, headers: Mapping[str, str], body: bytes) -> tuple[str, list[PredictionOutput]]:
    """Return the id and the outputs of a response. Raises ClientError."""
    try:
        length = int(headers.get(JSON_LENGTH.lower(), len(body)))
        value = json.loads(body[:length])
        rest = memoryview(body)[length:]
        outputs = []
        for one in value["outputs"]:
            size = (one.get("parameters") or {}).get("binary_data_size")
            shape = tuple(int(extent) for extent in one["shape"])
            if size is None:
                values = _from_json(one["datatype"], shape, one["data"])
            else:
                values, rest = _from_bytes(one["datatype"], shape, rest[:size]), rest[size:]
            outputs.append(PredictionOutput(str(one["name"]), str(one["datatype"]), shape, values))
        return str(value.get("id") or ""), outputs
    except MALFORMED as error:
        raise ClientError(f"the response of model {name} is not an inference response ({error}): {FOREIGN}") from error


def _from_bytes(datatype: str, shape: tuple[int, ...], content: memoryview) -> Any:
    import numpy as np

    from serving.engines.base.binary import LENGTH_SIZE, bf16
    from serving.engines.base.datatypes import BF16, BYTES, DATATYPES

    if datatype == BYTES:
        array = np.empty(math.prod(shape), dtype=object)
        at = 0
        for index in range(len(array)):
            begin = at + LENGTH_SIZE
            at = begin + int.from_bytes(content[at:begin], "little")
            if at > len(content):
                raise ValueError("an element exceeds the data")
            array[index] = _text(bytes(content[begin:at]))
        return array.reshape(shape)
    if datatype == BF16:
        return bf16(content).reshape(shape)
    return (
        np.frombuffer(content, DATATYPES[datatype].dtype).reshape(shape).copy()
    )  # writable, and free of the whole response


def _from_json(datatype: str, shape: tuple[int, ...], data: Any) -> Any:
    try:
        import numpy as np
    except ImportError:
        return _nested(data, shape)
    from serving.engines.base.datatypes import DATATYPES

    return np.array(data, dtype=DATATYPES[datatype].dtype).reshape(shape)


def _nested(data: list[Any], shape: Sequence[int]) -> Any:
    """Return flat elements as nested lists; elements that are nested already are unchanged."""
    if len(shape) < 2 or (data and isinstance(data[0], list)):
        return data
    size = math.prod(shape[1:])
    return [_nested(data[index * size : (index + 1) * size], shape[1:]) for index in range(shape[0])]


def _text(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
