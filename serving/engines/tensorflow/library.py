"""Import TensorFlow without its banner and without Keras. A SavedModel is served without Keras.

TensorFlow imports an installed Keras, and Keras imports the libraries that it supports (scikit-learn, SciPy). That
takes half of the import time and 120 MB.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final, cast

_KERAS: Final = "keras"

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only; read when the library is loaded
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # on the CPU; the first call would allocate all memory of a GPU

_hidden = _KERAS not in sys.modules
if _hidden:
    cast(Any, sys.modules)[_KERAS] = None
try:
    import tensorflow
    from tensorflow.python.eager.cancellation import CancellationManager  # not public: the only way to cancel a graph
    from tensorflow.python.framework import op_def_registry  # not public
finally:
    if _hidden:
        sys.modules.pop(_KERAS, None)

__all__ = ["CancellationManager", "is_stateful", "tensorflow"]


def is_stateful(op: str) -> bool:
    """Return whether TensorFlow declares an operator as one with state; False for names that it does not know.

    TensorFlow does not load a graph with an unknown operator.
    """
    definition = op_def_registry.get(op)
    return definition is not None and bool(definition.is_stateful)
