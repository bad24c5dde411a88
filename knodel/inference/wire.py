"""Encode requests and decode responses of the Open Inference Protocol, with its binary tensor data extension. Pure.

Source: Triton, protocol/extension_binary_data.md; KServe, Open Inference Protocol, "Binary Tensor Data Extension".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from knodel.inference.inputs import DTYPES, InputTensor
from knodel.results.prediction import PredictionOutput
from serving.client.errors import ClientError
from serving.client.http import FOREIGN

JSON_LENGTH = "Inference-Header-Content-Length"
LENGTH_SIZE = 4  # bytes before each element of a BYTES tensor


def encode(
    inputs: Sequence[InputTensor], outputs: Sequence[str] | None, parameters: Mapping[str, Any] | None, id: str
) -> tuple[dict[str, str], bytes]:
    """Return headers and body of a request; arrays are binary, lists JSON.

    `outputs` are the names of the wanted outputs, None for all.
    """
    blobs: list[bytes] = []
    made: list[dict[str, Any]] = []
    for name, datatype, shape, values in inputs:
        about: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(shape)}
        if isinstance(values, list):
            made.append({**about, "data": values})
        else:
            blobs.append(to_bytes(datatype, values))
            made.append({**about, "parameters": {"binary_data_size": len(blobs[-1])}})
    is_binary = bool(blobs)
    request: dict[str, Any] = {"id": id} if id else {}
    request["inputs"] = made
    if outputs is not None:
        request["outputs"] = [{"name": name} for name in outputs]
    if given := {**({"binary_data_output": True} if is_binary else {}), **(parameters or {})}:
        request["parameters"] = given
    head = json.dumps(request).encode()
    if not is_binary:
        return {"Content-Type": "application/json"}, head
    headers = {"Content-Type": "application/octet-stream", JSON_LENGTH: str(len(head))}
    return headers, b"".join([head, *blobs])


def to_bytes(datatype: str, array: Any) -> bytes:
    """Return the bytes of an array."""
    if datatype == "BYTES":
        texts = (item if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist())
        return b"".join(len(text).to_bytes(LENGTH_SIZE, "little") + text for text in texts)
    if datatype == "BF16":  # the upper half of an FP32, rounded to the nearest, ties to even
        bits = array.view("<u4").astype("<u8")
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        nan = (bits & 0x7FFFFFFF) > 0x7F800000
        rounded[nan] = (bits[nan] >> 16) | 0x40  # rounding must not turn a NaN into infinity
        return bytes(rounded.astype("<u2").tobytes())
    return bytes(array.tobytes())  # in C order


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
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ClientError(f"the response of model {name} is not an inference response ({error}): {FOREIGN}") from error


def _from_bytes(datatype: str, shape: tuple[int, ...], content: memoryview) -> Any:
    import numpy as np

    if datatype == "BYTES":
        array = np.empty(math.prod(shape), dtype=object)
        at = 0
        for index in range(len(array)):
            begin = at + LENGTH_SIZE
            at = begin + int.from_bytes(content[at:begin], "little")
            if at > len(content):
                raise ValueError("an element exceeds the data")
            array[index] = _text(bytes(content[begin:at]))
        return array.reshape(shape)
    if datatype == "BF16":
        upper = np.frombuffer(content, "<u2").astype("<u4") << 16
        return upper.view("<f4").reshape(shape)
    return np.frombuffer(content, DTYPES[datatype]).reshape(shape).copy()  # writable, and free of the whole response


def _from_json(datatype: str, shape: tuple[int, ...], data: Any) -> Any:
    try:
        import numpy as np
    except ImportError:
        return _nested(data, shape)
    return np.array(data, dtype=DTYPES[datatype]).reshape(shape)


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
