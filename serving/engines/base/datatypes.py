"""The tensor datatypes of the Open Inference Protocol and their NumPy equivalents. Pure."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Tensor = NDArray[Any]
"""An array of one of `DATATYPES`; BYTES are object arrays of `str` or `bytes`, BF16 are arrays of FP32."""


class Datatype(NamedTuple):  # no msgspec: programs that save models may not have it
    """A datatype: `size` is the bytes of an element on the wire, and 0 for BYTES, whose elements vary."""

    name: str
    dtype: np.dtype[Any]
    size: int

    @property
    def is_float(self) -> bool:
        """Whether the datatype is BF16, FP16, FP32 or FP64."""
        return self.dtype.kind == "f"


BYTES: Final = "BYTES"
BF16: Final = "BF16"
"""The upper half of an FP32. NumPy has no such type, so engines take and return FP32."""
DATATYPES: Final[dict[str, Datatype]] = {
    name: Datatype(name, np.dtype(code), {BYTES: 0, BF16: 2}.get(name, np.dtype(code).itemsize))
    for name, code in (
        ("BOOL", "?"),
        ("UINT8", "<u1"), ("UINT16", "<u2"), ("UINT32", "<u4"), ("UINT64", "<u8"),
        ("INT8", "<i1"), ("INT16", "<i2"), ("INT32", "<i4"), ("INT64", "<i8"),
        ("FP16", "<f2"), (BF16, "<f4"), ("FP32", "<f4"), ("FP64", "<f8"),
        (BYTES, "O"),
    )
}  # fmt: skip
"""By name; little-endian, as in the binary tensor extension."""

_NAMES: Final = {datatype.dtype: name for name, datatype in DATATYPES.items() if name != BF16}


def datatype_of(tensor: Tensor) -> Datatype:
    """Return the datatype of an array, never BF16. Raises KeyError for a dtype that the protocol does not have."""
    return DATATYPES[BYTES if tensor.dtype.kind in "OSU" else _NAMES[tensor.dtype]]
