"""Arrays as bytes of the binary tensor data extension (Triton, protocol/extension_binary_data.md). Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from serving.engines.base.datatypes import BF16, BYTES, DATATYPES, Datatype, Tensor

LENGTH_SIZE: Final = 4
"""Bytes of the length before each BYTES element."""
HALF: Final = 16  # bits: BF16 is the upper half of FP32
_FP32: Final = DATATYPES["FP32"].dtype


def to_bytes(tensor: Tensor, datatype: Datatype) -> bytes:
    """Return the tensor as bytes of the binary tensor extension; BF16 is rounded to the nearest."""
    if datatype.name == BF16:
        values = np.ascontiguousarray(tensor, dtype=_FP32)
        bits = values.view("<u4").astype("<u8")
        rounded = (bits + 0x7FFF + (bits >> HALF & 1)) >> HALF  # ties to even
        quiet = bits >> HALF | 0x40  # rounding must not turn a NaN into infinity
        return np.where(np.isnan(values), quiet, rounded).astype("<u2").tobytes()
    if datatype.name != BYTES:
        return np.ascontiguousarray(tensor, dtype=datatype.dtype).tobytes()
    texts = (item if isinstance(item, bytes) else str(item).encode() for item in tensor.ravel())
    return b"".join(len(text).to_bytes(LENGTH_SIZE, "little") + text for text in texts)


def bf16(content: bytes | memoryview) -> Tensor:
    """Return the FP32 array of BF16 bytes."""
    return (np.frombuffer(content, "<u2").astype("<u4") << HALF).view(_FP32)
