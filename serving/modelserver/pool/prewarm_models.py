"""Models of a few bytes by format, with FP32 or FP64 inputs, to prewarm the engines.

Each is made by its own library, because a library need not read files of an earlier release. A claim needs the modules
that making one imports. Formats are left out when making a model takes longer than it saves (TensorFlow), or when the
engine starts a process for each model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final


def _onnx() -> bytes:
    """Return the model y = x + x for a vector x."""
    return (
        b'\x08\x08:;\n\x0e\n\x01x\n\x01x\x12\x01y"\x03Add\x12\x05graphZ\x10\n\x01x\x12\x0b\n\t\x08\x01\x12\x05'
        b"\n\x03\x12\x01nb\x10\n\x01y\x12\x0b\n\t\x08\x01\x12\x05\n\x03\x12\x01nB\x04\n\x00\x10\x11"
    )


def _sklearn() -> bytes:
    import skops.io
    from sklearn.linear_model import LinearRegression

    return bytes(skops.io.dumps(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])))


def _xgboost() -> bytes:
    import numpy as np
    import xgboost

    rows = xgboost.DMatrix(np.zeros((2, 1), np.float32), label=[0.0, 1.0])
    return bytes(xgboost.train({"nthread": 1, "max_depth": 1}, rows, num_boost_round=1).save_raw("ubj"))


def _lightgbm() -> bytes:
    import lightgbm
    import numpy as np

    rows = lightgbm.Dataset(np.arange(2.0).reshape(2, 1), label=[0.0, 1.0])
    small = {"num_threads": 1, "verbose": -1, "min_data_in_leaf": 1, "min_data_in_bin": 1}
    return bytes(lightgbm.train(small, rows, num_boost_round=1).model_to_string().encode())


MODELS: Final[dict[str, Callable[[], bytes]]] = {
    "onnx": _onnx, "sklearn": _sklearn, "xgboost": _xgboost, "lightgbm": _lightgbm,
}  # fmt: skip
"""Functions that return the bytes of a model file, by format."""
