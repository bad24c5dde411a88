"""The requests of the benchmark, each with the correct output."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

NAME = "bench"
PATH = f"/v2/models/{NAME}/infer"
GRPC_METHOD = "/inference.GRPCInferenceService/ModelInfer"
TOLERANCE = 1e-4  # tolerance between two libraries with FP32
JSON_TYPE = "application/json"
BINARY_TYPE = "application/octet-stream"


class Kind(Enum):
    """Encoding of the tensor."""

    JSON = "JSON"
    BINARY = "binary"
    GRPC = "gRPC"


@dataclass(frozen=True, slots=True)
class Load:
    """A request body (gRPC: the message) and `answer`, the correct values of the first output."""

    label: str
    kind: Kind
    body: bytes
    headers: Mapping[str, str]
    answer: Sequence[float]

    def check(self, body: bytes) -> None:
        """Check a JSON response. Raises SystemExit if it is wrong."""
        self.compare(_numbers(json.loads(body)["outputs"][0]["data"]))

    def compare(self, found: Iterable[float]) -> None:
        """Check output values. Raises SystemExit if they are wrong."""
        numbers = list(found)
        same = len(numbers) == len(self.answer)
        if not same or not all(map(_close, numbers, self.answer)):
            raise SystemExit(f"{self.label}: output {numbers[:8]}, expected {list(self.answer)[:8]}")


@dataclass(frozen=True, slots=True)
class Tensor:
    """An FP32 tensor as input; `raw` has its little-endian bytes."""

    name: str
    shape: Sequence[int]
    numbers: Sequence[float]
    raw: bytes


def as_json(label: str, tensor: Tensor, answer: Sequence[float]) -> Load:
    """Return the load with numbers as text."""
    body = json.dumps({"inputs": [_input(tensor) | {"data": list(tensor.numbers)}]}, separators=(",", ":"))
    return Load(label, Kind.JSON, body.encode(), {"Content-Type": JSON_TYPE}, answer)


def as_binary(label: str, tensor: Tensor, answer: Sequence[float]) -> Load:
    """Return the load with the binary tensor data extension. The response is JSON."""
    parameters = {"binary_data_size": len(tensor.raw)}
    head = json.dumps({"inputs": [_input(tensor) | {"parameters": parameters}]}, separators=(",", ":")).encode()
    headers = {"Content-Type": BINARY_TYPE, "Inference-Header-Content-Length": str(len(head))}
    return Load(label, Kind.BINARY, head + tensor.raw, headers, answer)


def as_grpc(label: str, tensor: Tensor, answer: Sequence[float]) -> Load:
    """Return the load as a ModelInferRequest with raw contents."""
    from tritonclient.grpc import service_pb2

    message = service_pb2.ModelInferRequest(model_name=NAME, raw_input_contents=[tensor.raw])
    message.inputs.add(name=tensor.name, datatype="FP32", shape=tensor.shape)
    return Load(label, Kind.GRPC, message.SerializeToString(), {}, answer)


def _input(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": "FP32", "shape": list(tensor.shape)}


def _numbers(data: Any) -> Iterator[float]:
    for item in data:
        if isinstance(item, list):
            yield from _numbers(item)
        else:
            yield float(item)


def _close(found: float, expected: float) -> bool:
    return math.isclose(found, expected, abs_tol=TOLERANCE)
