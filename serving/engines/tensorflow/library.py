"""TensorFlow, imported without its greetings and without Keras, which serving a SavedModel does not need.

TensorFlow imports Keras if it finds it, and Keras whatever it supports (scikit-learn, SciPy): half the time of the
import and 120 MB.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final, cast

_KERAS: Final = "keras"

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only; read when the library is loaded
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # on the CPU; a GPU would be taken whole at the first call

_hidden = _KERAS not in sys.modules
if _hidden:
    cast(Any, sys.modules)[_KERAS] = None
try:
    import tensorflow
    from tensorflow.python.eager.cancellation import CancellationManager  # no public name: the only way to stop a graph
    from tensorflow.python.framework import op_def_registry  # likewise
finally:
    if _hidden:
        sys.modules.pop(_KERAS, None)

__all__ = ["CancellationManager", "is_stateful", "tensorflow"]


def is_stateful(op: str) -> bool:
    """Return whether TensorFlow declares an operator as one with state; False for names that it does not know.

    A graph with an operator that it does not know cannot be loaded.
    """
    definition = op_def_registry.get(op)
    return definition is not None and bool(definition.is_stateful)
