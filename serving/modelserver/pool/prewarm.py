"""Prewarm a pool member before it can be claimed, so that a claim does not pay for work that happens only once.

The member loads a small model of its format, if there is one (`prewarm_models`), and answers a request with it, by the
same code and in the same thread as after a claim. This fills the runtime's tables and runs all code once. The member
also allocates memory that the model will need: for a small model, the kernel's page faults take longer than reading the
file. From the load call to the first response of a 3 MB ONNX model a member uses 60 ms of CPU without this work and
40 ms with it.
"""

from __future__ import annotations

import math
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
from serving.modelserver.pool.prewarm_models import MODELS
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
