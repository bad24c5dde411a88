"""The messages between a model server and the process of a model, over a socket. They carry numbers, no pickles.

A message is the length of its header (4 bytes, little-endian), the header as JSON, then the bytes of its tensors. The
server validates the messages of the process, because a malicious model may have taken control of its library.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from serving.engines.base.datatypes import BYTES, DATATYPES, Tensor, datatype_of
from serving.engines.base.engine import EngineOptions, Signature

MAX_HEADER: Final = 1 << 20  # bytes
MAX_TENSOR: Final = 1 << 31  # bytes; more than the server accepts, less than would exhaust the machine
_LENGTH: Final = 4  # bytes


class TensorHeader(msgspec.Struct):
    """The name, datatype and shape of a tensor whose bytes follow the header."""

    name: str
    datatype: str
    shape: list[int]


class LoadModel(msgspec.Struct, tag=True):
    """Load the model of a folder by `module`; the response is ModelLoaded or ChildFailure."""

    module: str
    folder: str
    uri: str
    options: EngineOptions


class ModelLoaded(msgspec.Struct, tag=True):
    """The model is loaded."""

    signature: Signature


class RunInference(msgspec.Struct, tag=True):
    """Run an inference; the response is InferenceOutputs or ChildFailure."""

    tensors: list[TensorHeader]
    outputs: list[str]


class InferenceOutputs(msgspec.Struct, tag=True):
    """The outputs, in the order of the request."""

    tensors: list[TensorHeader]


class ChildFailure(msgspec.Struct, tag=True):
    """The request failed; `error` is the name of a class in `serving.engines.base.errors`."""

    error: str
    message: str


Message: TypeAlias = LoadModel | ModelLoaded | RunInference | InferenceOutputs | ChildFailure
_DECODER: Final[msgspec.json.Decoder[Message]] = msgspec.json.Decoder(Message)
_ENCODER: Final = msgspec.json.Encoder()


class Channel:
    """One end of the connection.

    Raises OSError and EOFError when the other end is closed, ValueError for an invalid message.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def send(self, message: Message, tensors: Sequence[Tensor] = ()) -> None:
        """Send a message; blocks until it is written."""
        header = _ENCODER.encode(message)
        self._socket.sendall(len(header).to_bytes(_LENGTH, "little") + header)
        for tensor in tensors:
            self._socket.sendall(_bytes_of(np.ascontiguousarray(tensor)))

    def receive(self) -> tuple[Message, list[Tensor]]:
        """Return the next message and its tensors; blocks until it has arrived."""
        length = int.from_bytes(self._read(bytearray(_LENGTH)), "little")
        if length > MAX_HEADER:
            raise ValueError(f"invalid header: {length} bytes, the limit is {MAX_HEADER}")
        message = _DECODER.decode(self._read(bytearray(length)))
        headers = message.tensors if isinstance(message, RunInference | InferenceOutputs) else []
        return message, [self._receive_tensor(header) for header in headers]

    def close(self) -> None:
        """Close the connection; the other end reads EOF."""
        self._socket.close()

    def _receive_tensor(self, header: TensorHeader) -> Tensor:
        datatype = DATATYPES.get(header.datatype)
        if datatype is None or datatype.name == BYTES or min(header.shape, default=0) < 0:
            raise ValueError(f"invalid tensor: {header.datatype} {header.shape}")
        if math.prod(header.shape) * datatype.dtype.itemsize > MAX_TENSOR:
            raise ValueError(f"invalid tensor: more than {MAX_TENSOR} bytes")
        tensor = np.empty(header.shape, datatype.dtype)
        self._read(_bytes_of(tensor))
        return tensor

    def _read(self, buffer: Any) -> Any:
        view = memoryview(buffer)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]
        return buffer


def tensor_headers(names: Sequence[str], tensors: Sequence[Tensor]) -> list[TensorHeader]:
    """Return the headers of `tensors`."""
    return [
        TensorHeader(name, datatype_of(tensor).name, list(tensor.shape))
        for name, tensor in zip(names, tensors, strict=True)
    ]


def _bytes_of(array: Tensor) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
