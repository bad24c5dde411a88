"""Checks and conversions of arrays: declared shapes, text elements, and positions in model files. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import ANY
from serving.engines.base.errors import InputRefused

IntArray = NDArray[np.int64]


def fits(expected: Sequence[int], shape: Sequence[int]) -> bool:
    """Return whether `shape` has the sizes of `expected`, which has `ANY` where a size may vary."""
    return len(shape) == len(expected) and all(
        wanted in (ANY, given) for wanted, given in zip(expected, shape, strict=True)
    )


def as_text(tensor: Tensor) -> Tensor:
    """Return a BYTES tensor with every element as `str`. Raises InputRefused for bytes that are not UTF-8.

    Libraries would convert `bytes` to their representation in Python, such as "b'a'".
    """
    try:
        texts = [item.decode() if isinstance(item, bytes) else item for item in tensor.ravel()]
    except UnicodeDecodeError as error:
        raise InputRefused("the input has strings that are not UTF-8") from error
    made = np.empty(len(texts), dtype=object)
    made[:] = texts
    return made.reshape(tensor.shape)


def within(values: IntArray, end: int) -> bool:
    """Return whether all values are at least 0 and below `end`."""
    return bool(((values >= 0) & (values < end)).all())


def require(holds: bool) -> None:
    """Raise ValueError for a damaged model file unless a check of its numbers `holds`."""
    if not holds:
        raise ValueError("the file is damaged: save the model again")
