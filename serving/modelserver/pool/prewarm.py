"""What a pool member does before it can be claimed, so that no claim pays for what happens only once.

It loads a small model of its format, if there is one (`rehearsal_models`), and answers a request with it, by the code
and in the thread of a claim: the runtime's tables are filled, all code has run. And it takes memory that the model will
need anyway: of a small model, the kernel's work at the first touch of each page takes longer than reading the file.
From the load call to the first answer of 3 MB of ONNX a member computes 60 ms without this and 40 ms with it.
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
from serving.modelserver.codec.bounded_read import RequestBody
from serving.modelserver.endpoints.infer import prepare_request
from serving.modelserver.execution.inference import answer
from serving.modelserver.execution.loading import load_model
from serving.modelserver.pool.prewarm_models import MODELS
from serving.storage.base.artifact import Artifact

NAME: Final = "rehearsal"
MEMORY: Final = 24 * MEBIBYTE  # what a model of 3 MB takes in ONNX Runtime; a larger one touches the rest itself
_BLOCK: Final = MEBIBYTE
_LARGE: Final = 31 * MEBIBYTE
"""After such a block was freed, glibc (malloc/malloc.c, `mp_.mmap_threshold`, at most 32 MiB) takes smaller ones from
memory that it keeps, and keeps twice as much of it."""


def rehearse(pool: Pool, bounds: ModelBounds, limits: ServerLimits) -> None:
    """Load and answer once, and touch `MEMORY`; blocks. Raises EngineError when the engine cannot even do that."""
    rehearse_model(pool.format, bounds, limits)
    _touch_memory()


def rehearse_model(format: str, bounds: ModelBounds, limits: ServerLimits) -> None:
    """Load a model of this format, if there is a small one, and answer once; blocks. Raises EngineError."""
    make = MODELS.get(format)
    if make is not None:
        assignment = Assignment(NAME, NAME, "", "", format, bounds)
        artifact = Artifact(Path(NAME + FORMATS[format].suffixes[0]), make())
        model = load_model(assignment, lambda: artifact, limits, StartupTimes())
        answer(prepare_request(RequestBody(request_of(model.signature), None)), model, None)
        model.engine.close()


def request_of(signature: Signature) -> bytes:
    """A request for one row of zeros."""
    inputs = [
        {"name": spec.name, "datatype": spec.datatype, "shape": shape, "data": [0.0] * math.prod(shape)}
        for spec in signature.inputs
        for shape in [[1 if size == ANY else size for size in spec.shape or ()]]
    ]
    return msgspec.json.encode({"inputs": inputs})


def _touch_memory() -> None:
    bytes(_LARGE)
    blocks = [b"\1" * _BLOCK for _ in range(MEMORY // _BLOCK)]
    blocks.clear()
