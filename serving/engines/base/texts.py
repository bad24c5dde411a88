"""Texts of the BYTES datatype, as the libraries of engines want them."""

from __future__ import annotations

import numpy as np

from serving.engines.base.datatypes import Tensor
from serving.engines.base.errors import InputRefused


def as_text(tensor: Tensor) -> Tensor:
    """Every element as `str`: of `bytes` a library would make their representation in Python. Raises InputRefused."""
    try:
        texts = [item.decode() if isinstance(item, bytes) else item for item in tensor.ravel()]
    except UnicodeDecodeError as error:
        raise InputRefused("the model's strings are UTF-8, the input's are not") from error
    made = np.empty(len(texts), dtype=object)
    made[:] = texts
    return made.reshape(tensor.shape)
