"""Read and check the header of a file in the form of safetensors. No weights are read.

8 bytes   length of the header, little endian
header    JSON: {NAME: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__"?: {TEXT: TEXT}}
data      the tensors, without gaps
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from io import FileIO
from typing import Final

import msgspec

from serving.engines.base.errors import LoadFailed

MAX_HEADER: Final = 100_000_000
"""Bytes of a header, the limit of the package safetensors."""
_LENGTH: Final = struct.Struct("<Q")
_METADATA: Final = "__metadata__"
_BITS: Final[Mapping[str, int]] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


class Tensor(msgspec.Struct):
    """A tensor's place in the data."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


_HEADER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TENSOR: Final = msgspec.json.Decoder(Tensor)
_TEXTS: Final = msgspec.json.Decoder(dict[str, str])


def read_header(file: FileIO, size: int, name: str) -> Mapping[str, Tensor]:
    """Return the tensors of a file of `size` bytes. Raises LoadFailed if the file is not whole and valid."""
    length = _header_length(file.read(_LENGTH.size), size, name)
    try:
        header = _HEADER.decode(_read_exactly(file, length))
        if _METADATA in header:
            _TEXTS.decode(header.pop(_METADATA))
        tensors = {key: _TENSOR.decode(value) for key, value in header.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LoadFailed(f"{name} is not a file of safetensors ({error}): save the model again") from error
    _check_places(tensors, size - _LENGTH.size - length, name)
    return tensors


def _header_length(start: bytes, size: int, name: str) -> int:
    if len(start) < _LENGTH.size:
        raise LoadFailed(f"{name} has {size} bytes and no header: it is truncated, so copy it again")
    length: int = _LENGTH.unpack(start)[0]
    if length > MAX_HEADER:
        raise LoadFailed(f"{name} is not a file of safetensors: save the model again with save_pretrained")
    if length > size - _LENGTH.size:
        raise LoadFailed(f"{name} ends inside its header of {length} bytes: it is truncated, so copy it again")
    return length


def _read_exactly(file: FileIO, length: int) -> bytes:
    pieces = []
    while length and (piece := file.read(length)):
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def _check_places(tensors: Mapping[str, Tensor], data: int, name: str) -> None:
    """Check that the tensors have the sizes of their shapes and fill the data, one after the other."""
    at = 0
    for key, tensor in sorted(tensors.items(), key=lambda one: one[1].data_offsets):
        begin, end = tensor.data_offsets
        if begin != at or end < begin:
            raise LoadFailed(f"{name}: tensor {key[:100]!r} overlaps another one or leaves a gap: save the model again")
        if end > data:
            raise LoadFailed(
                f"{name}: tensor {key[:100]!r} ends at byte {end} of {data}: the file is truncated, so copy it again"
            )
        _check_size(key, tensor, name)
        at = end
    if at != data:
        raise LoadFailed(f"{name} has {data - at} bytes that belong to no tensor: save the model again")


def _check_size(key: str, tensor: Tensor, name: str) -> None:
    if any(length < 0 for length in tensor.shape):
        raise LoadFailed(f"{name}: tensor {key[:100]!r} has a negative size: save the model again")
    bits = _BITS.get(tensor.dtype)
    begin, end = tensor.data_offsets
    if bits is not None and math.prod(tensor.shape) * bits != 8 * (end - begin):
        raise LoadFailed(f"{name}: tensor {key[:100]!r} has {end - begin} bytes, not those of its shape: save it again")
