"""What a model server and the process of a model say to each other over a socket; numbers only, no pickles.

A message is the length of its head (4 bytes, little-endian), the head as JSON, then the bytes of its tensors. The
process runs code of a library that a model may have taken over: what comes from it is checked.
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

LARGEST_HEAD: Final = 1 << 20  # bytes
LARGEST_TENSOR: Final = 1 << 31  # bytes; above what the server takes, below what would take the machine
_LENGTH: Final = 4  # bytes


class TensorHead(msgspec.Struct):
    """How the bytes of a tensor are to be read."""

    name: str
    datatype: str
    shape: list[int]


class Load(msgspec.Struct, tag=True):
    """Load the model of a folder by `module`; answered by Loaded or Failed."""

    module: str
    folder: str
    uri: str
    options: EngineOptions


class Loaded(msgspec.Struct, tag=True):
    """The model is loaded."""

    signature: Signature


class Infer(msgspec.Struct, tag=True):
    """Infer; answered by Answer or Failed."""

    tensors: list[TensorHead]
    outputs: list[str]


class Answer(msgspec.Struct, tag=True):
    """The outputs, in the order of the request."""

    tensors: list[TensorHead]


class Failed(msgspec.Struct, tag=True):
    """It did not work; `error` is the name of a class of `serving.engines.base.errors`."""

    error: str
    words: str


Message: TypeAlias = Load | Loaded | Infer | Answer | Failed
_DECODER: Final[msgspec.json.Decoder[Message]] = msgspec.json.Decoder(Message)
_ENCODER: Final = msgspec.json.Encoder()


class Channel:
    """One end. Raises OSError and EOFError when the other is gone, ValueError when it says what makes no sense."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def send(self, message: Message, tensors: Sequence[Tensor] = ()) -> None:
        """Blocks until it is written."""
        head = _ENCODER.encode(message)
        self._socket.sendall(len(head).to_bytes(_LENGTH, "little") + head)
        for tensor in tensors:
            self._socket.sendall(_bytes_of(np.ascontiguousarray(tensor)))

    def receive(self) -> tuple[Message, list[Tensor]]:
        """Blocks until a message is there."""
        length = int.from_bytes(self._read(bytearray(_LENGTH)), "little")
        if length > LARGEST_HEAD:
            raise ValueError(f"a head of {length} bytes")
        message = _DECODER.decode(self._read(bytearray(length)))
        heads = message.tensors if isinstance(message, Infer | Answer) else []
        return message, [self._tensor(head) for head in heads]

    def close(self) -> None:
        """Tell the other end that nothing follows."""
        self._socket.close()

    def _tensor(self, head: TensorHead) -> Tensor:
        datatype = DATATYPES.get(head.datatype)
        if datatype is None or datatype.name == BYTES or min(head.shape, default=0) < 0:
            raise ValueError(f"a tensor of {head.datatype} {head.shape}")
        if math.prod(head.shape) * datatype.dtype.itemsize > LARGEST_TENSOR:
            raise ValueError(f"a tensor of more than {LARGEST_TENSOR} bytes")
        tensor = np.empty(head.shape, datatype.dtype)
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


def heads_of(names: Sequence[str], tensors: Sequence[Tensor]) -> list[TensorHead]:
    """How `tensors` are to be read."""
    return [
        TensorHead(name, datatype_of(tensor).name, list(tensor.shape))
        for name, tensor in zip(names, tensors, strict=True)
    ]


def _bytes_of(array: Tensor) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
