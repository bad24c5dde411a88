"""Checks of the numbers in a model's file that lead to other places in memory. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


def within(values: Numbers, end: int) -> bool:
    """Whether all are at least 0 and below `end`."""
    return bool(((values >= 0) & (values < end)).all())


def require(holds: bool) -> None:
    """Raises ValueError unless that `holds`."""
    if not holds:
        raise ValueError("the file is damaged: save the model again")
