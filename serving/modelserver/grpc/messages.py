"""The protobuf messages of the protocol, built from their compiled description.

The messages are in a descriptor pool of their own. The default pool of the process rejects a second description of the
same names, and a model's code may bring one, such as that of Triton's client. Generated modules always use the default
pool, so there are none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

DESCRIPTIONS: Final = Path(__file__).with_name("descriptions.binpb")
"""`inference.proto` and `health.proto`, compiled by `make proto`."""

_POOL: Final = DescriptorPool()
for _file in FileDescriptorSet.FromString(DESCRIPTIONS.read_bytes()).file:
    _POOL.AddSerializedFile(_file.SerializeToString())


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
