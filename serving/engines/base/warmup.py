"""The first inferences of a model, before it is ready: a caller is not to pay for what happens only once.

They are of the model's own example if it has one, else of invented inputs.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from clusters.base.redact import one_line
from serving.engines.base.datatypes import BYTES, DATATYPES, Tensor
from serving.engines.base.engine import ANY, Engine, TensorSpec
from serving.engines.base.errors import EngineError, LoadFailed
from serving.engines.base.reasons import reason_of

log = logging.getLogger(__name__)

LARGEST: Final = 1 << 28  # bytes of an invented input; a model that wants more is not warmed up
ENOUGH: Final = 0.005  # s of CPU; a first inference that took so long is no short one, whatever happened only once


def warm_up(
    engine: Engine, example: Mapping[str, Tensor] | None = None, cpu_time: Callable[[], float] = time.thread_time
) -> float | None:
    """Infer on the example, or on invented inputs; the CPU seconds of an inference.

    None when the model refuses invented inputs; an example that it refuses is a LoadFailed.
    """
    inputs = invented_inputs(engine.signature.inputs) if example is None else example
    if inputs is None:
        return None

    def once(outputs: Sequence[str]) -> float:
        start = cpu_time()
        engine.infer(inputs, outputs)
        return cpu_time() - start

    try:
        first = once([spec.name for spec in engine.signature.outputs])
        return first if first >= ENOUGH else once(engine.signature.usual)
    except EngineError as error:
        if example is not None:
            raise LoadFailed(f"the model fails on its own example: {reason_of(error)}") from error
        # many models need inputs with a meaning
        log.info("no warm-up: the model refuses invented inputs (%s)", one_line(str(error)))
        return None


def invented_inputs(specs: tuple[TensorSpec, ...]) -> dict[str, Tensor] | None:
    """Zeros (empty strings) of the declared shapes, 1 where a dimension varies; None when they would be too large."""
    shapes = {spec.name: tuple(1 if size == ANY else size for size in spec.shape or ()) for spec in specs}
    total = sum(math.prod(shapes[spec.name]) * DATATYPES[spec.datatype].dtype.itemsize for spec in specs)
    if total > LARGEST:
        return None
    return {
        spec.name: np.full(shapes[spec.name], "", dtype=object)
        if spec.datatype == BYTES
        else np.zeros(shapes[spec.name], DATATYPES[spec.datatype].dtype)
        for spec in specs
    }
