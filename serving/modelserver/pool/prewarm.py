"""Prewarm a pool member before it can be claimed, so that a claim does not pay for work that happens only once.

The member loads a small model of its format, if there is one (`MODELS`), and answers a request with it, by the
same code and in the same thread as after a claim. This fills the runtime's tables and runs all code once. The member
also allocates memory that the model will need: for a small model, the kernel's page faults take longer than reading the
file. From the load call to the first response of a 3 MB ONNX model a member uses 60 ms of CPU without this work and
40 ms with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from serving.engines.base.engine import ANY, Signature
from serving.engines.base.registry import FORMATS
from serving.modelserver.base.assignment import Assignment, ModelBounds
from serving.modelserver.base.limits import MEBIBYTE, ServerLimits
from serving.modelserver.base.options import Pool
from serving.modelserver.base.stats import StartupTimes
from serving.modelserver.codec.bounded_read import BufferedBody
from serving.modelserver.endpoints.infer import prepare_request
from serving.modelserver.execution.inference import infer_unbatched
from serving.modelserver.execution.loading import load_model
from serving.storage.base.artifact import Artifact

NAME: Final = "prewarm"
MEMORY: Final = 24 * MEBIBYTE  # of a 3 MB model in ONNX Runtime; a larger one has page faults for the rest
_BLOCK: Final = MEBIBYTE
_LARGE: Final = 31 * MEBIBYTE
"""Size in bytes of a block that changes glibc's allocator when it is freed (malloc/malloc.c, `mp_.mmap_threshold`, at
most 32 MiB): smaller blocks then come from memory that glibc keeps, and it keeps twice as much of it."""


def prewarm(pool: Pool, bounds: ModelBounds, limits: ServerLimits) -> None:
    """Load a small model, answer one request, and touch `MEMORY` bytes; blocks. Raises EngineError."""
    prewarm_format(pool.format, bounds, limits)
    bytes(_LARGE)
    blocks = [b"\1" * _BLOCK for _ in range(MEMORY // _BLOCK)]
    blocks.clear()


def prewarm_format(format: str, bounds: ModelBounds, limits: ServerLimits) -> None:
    """Load the small model of this format, if there is one, and answer one request; blocks. Raises EngineError."""
    make = MODELS.get(format)
    if make is not None:
        assignment = Assignment(NAME, NAME, "", "", format, bounds)
        artifact = Artifact(Path(NAME + FORMATS[format].suffixes[0]), make())
        model = load_model(assignment, lambda: artifact, limits, StartupTimes())
        infer_unbatched(prepare_request(BufferedBody(request_of(model.signature), None)), model, None)
        model.engine.close()


def request_of(signature: Signature) -> bytes:
    """Return a request body of protocol v2 with one row of zeros."""
    inputs = [
        {"name": spec.name, "datatype": spec.datatype, "shape": shape, "data": [0.0] * math.prod(shape)}
        for spec in signature.inputs
        for shape in [[1 if size == ANY else size for size in spec.shape or ()]]
    ]
    return msgspec.json.encode({"inputs": inputs})


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
"""Functions that return the bytes of a model file of a few bytes, with FP32 or FP64 inputs, by format.

Each model is made by its own library, because a library need not read files of an earlier release. A claim needs the
modules that making one imports. A format is left out when making a model takes longer than it saves (TensorFlow), or
when the engine starts a process for each model.
"""
