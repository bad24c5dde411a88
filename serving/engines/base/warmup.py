"""Run the first inferences of a model before it is ready, so that no caller waits for one-time initialization.

The inputs are the model's own example if it has one, else synthetic ones.
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
from serving.engines.base.errors import EngineError, LoadFailed, short_reason

log = logging.getLogger(__name__)

MAX_BYTES: Final = 1 << 28  # bytes of all synthetic inputs; a model that needs more is not warmed up
SHORT_INFERENCE: Final = 0.005  # s of CPU; a longer first inference is not repeated


def warm_up(
    engine: Engine, example: Mapping[str, Tensor] | None = None, cpu_time: Callable[[], float] = time.thread_time
) -> float | None:
    """Run inferences on the example, or on synthetic inputs, and return the CPU seconds of one.

    Returns None when the model rejects the synthetic inputs. Raises LoadFailed when it rejects its example.
    """
    inputs = synthetic_inputs(engine.signature.inputs) if example is None else example
    if inputs is None:
        return None

    def once(outputs: Sequence[str]) -> float:
        start = cpu_time()
        engine.infer(inputs, outputs)
        return cpu_time() - start

    try:
        first = once([spec.name for spec in engine.signature.outputs])
        return first if first >= SHORT_INFERENCE else once(engine.signature.default_outputs)
    except EngineError as error:
        if example is not None:
            raise LoadFailed(f"the model fails on its own example: {short_reason(error)}") from error
        # many models need meaningful inputs
        log.info("no warm-up: the model rejects synthetic inputs (%s)", one_line(str(error)))
        return None


def synthetic_inputs(specs: tuple[TensorSpec, ...]) -> dict[str, Tensor] | None:
    """Return zeros or empty strings of the declared shapes, with size 1 where a dimension varies.

    Returns None when they would exceed `MAX_BYTES`.
    """
    shapes = {spec.name: tuple(1 if size == ANY else size for size in spec.shape or ()) for spec in specs}
    total = sum(math.prod(shapes[spec.name]) * DATATYPES[spec.datatype].dtype.itemsize for spec in specs)
    if total > MAX_BYTES:
        return None
    return {
        spec.name: np.full(shapes[spec.name], "", dtype=object)
        if spec.datatype == BYTES
        else np.zeros(shapes[spec.name], DATATYPES[spec.datatype].dtype)
        for spec in specs
    }
