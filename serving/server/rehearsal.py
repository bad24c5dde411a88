"""What a pool member does before it can be claimed, so that no claim pays for what happens only once.

It loads a model of a few bytes and answers a request with it, by the code and in the thread of a claim: the runtime's
tables are filled, all code has run. And it takes memory that the model will need anyway: of a small model, the kernel's
work at the first touch of each page takes longer than reading the file. From the load call to the first answer of 3 MB
of ONNX a member computes 60 ms without this and 40 ms with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from serving.server.assignment import Assignment, Bounds
from serving.server.body import Body
from serving.server.infer import answer
from serving.server.limits import MEBIBYTE, Limits
from serving.server.loading import load_model
from serving.server.options import Pool
from serving.server.stats import Startup
from serving.storage.artifact import Artifact

NAME: Final = "rehearsal"
MODELS: Final = {
    "onnx": b'\x08\x08:;\n\x0e\n\x01x\n\x01x\x12\x01y"\x03Add\x12\x05graphZ\x10\n\x01x\x12\x0b\n\t\x08\x01\x12\x05'
    b"\n\x03\x12\x01nb\x10\n\x01y\x12\x0b\n\t\x08\x01\x12\x05\n\x03\x12\x01nB\x04\n\x00\x10\x11",
}
"""By format, a model of FP32 x [n] → y = x + x."""
REQUEST: Final = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1.0]}]}'
MEMORY: Final = 24 * MEBIBYTE  # what a model of 3 MB takes in ONNX Runtime; a larger one touches the rest itself
_BLOCK: Final = MEBIBYTE
_LARGE: Final = 31 * MEBIBYTE
"""After such a block was freed, glibc (malloc/malloc.c, `mp_.mmap_threshold`, at most 32 MiB) takes smaller ones from
memory that it keeps, and keeps twice as much of it."""


def rehearse(pool: Pool, bounds: Bounds, limits: Limits) -> None:
    """Load and answer once, and touch `MEMORY`; blocks. Raises EngineError when the engine cannot even do that."""
    content = MODELS.get(pool.format)
    if content is not None:
        assignment = Assignment(NAME, NAME, "", "", pool.format, bounds)
        artifact = Artifact(Path(f"{NAME}.{pool.format}"), content)
        model = load_model(assignment, lambda: artifact, limits, Startup())
        answer(model, Body(REQUEST, None), None)
        model.engine.close()
    _touch_memory()


def _touch_memory() -> None:
    bytes(_LARGE)
    blocks = [b"\1" * _BLOCK for _ in range(MEMORY // _BLOCK)]
    blocks.clear()
