"""The protocol's messages, from their compiled description.

In a pool of their own: the standard one of the process refuses a second description of the same names, and a model's
own code may bring one (that of Triton's client, say). So there are no generated modules, which all use that one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

DESCRIPTIONS: Final = Path(__file__).with_name("descriptions.binpb")
"""`inference.proto` and `health.proto`, compiled by `make proto`."""


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(DESCRIPTIONS.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL: Final = _pool()


def _message(name: str) -> Any:
    return GetMessageClass(_POOL.FindMessageTypeByName(name))


ServerLiveResponse: Final = _message("inference.ServerLiveResponse")
ServerReadyResponse: Final = _message("inference.ServerReadyResponse")
ModelReadyRequest: Final = _message("inference.ModelReadyRequest")
ModelReadyResponse: Final = _message("inference.ModelReadyResponse")
ServerMetadataResponse: Final = _message("inference.ServerMetadataResponse")
ModelMetadataRequest: Final = _message("inference.ModelMetadataRequest")
ModelMetadataResponse: Final = _message("inference.ModelMetadataResponse")
ModelInferRequest: Final = _message("inference.ModelInferRequest")
ModelInferResponse: Final = _message("inference.ModelInferResponse")
HealthCheckRequest: Final = _message("grpc.health.v1.HealthCheckRequest")
HealthCheckResponse: Final = _message("grpc.health.v1.HealthCheckResponse")
