"""From a storage URI to a model that is ready: fetch, load, warm up, each stage timed. Blocks; runs in a thread.

What a model takes of memory is by how much this process and its children grew while it was loaded and warmed up, by a
gauge that is told the model's format; its engine is imported before. It is at least what the files have.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from serving.engines.base.engine import EngineOptions
from serving.engines.base.registry import find_format, loader_of
from serving.engines.base.warmup import warm_up
from serving.modelserver.base.assignment import Assignment
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.stats import StartupTimes
from serving.modelserver.codec.protocol_v2 import V2Codec
from serving.modelserver.execution.example import MOST_SHOWN, inputs_of, read_example
from serving.modelserver.execution.lifecycle import ServedModel
from serving.modelserver.execution.memory import at_once
from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

_MS = 1000


def load_model(
    assignment: Assignment,
    artifact: Callable[[], Artifact],
    limits: ServerLimits,
    startup: StartupTimes,
    *,
    engine_options: EngineOptions | None = None,
    warm: bool = True,
    gauge: Callable[[str], int] = at_once,
    monotonic: Callable[[], float] = time.monotonic,
) -> ServedModel:
    """The model of the artifact, warmed up unless not `warm`; fills in `startup`. Raises StorageError, EngineError."""
    start = monotonic()
    files = artifact()
    startup.fetch = (monotonic() - start) * _MS
    startup.digest = files.digest
    options = engine_options or EngineOptions(assignment.bounds.threads)
    found = find_format(assignment.format, files.names(), allow_code=options.allow_code)
    startup.format = found.name
    load = loader_of(found)
    before = gauge(found.name)
    engine = load(files, options)
    try:
        codec = V2Codec(assignment.name, assignment.revision, engine.signature, limits)
        loaded = monotonic()
        startup.load = (loaded - start) * _MS
        example = read_example(files, limits.body)
        inputs = inputs_of(example, codec, files.uri) if warm and example is not None else None
        pace = warm_up(engine, inputs) if warm else None
    except BaseException:
        engine.close()
        raise
    startup.warmup = (monotonic() - loaded) * _MS
    memory = max(gauge(found.name) - before, size_of(files))
    shown = example if example is not None and len(example) <= MOST_SHOWN else None
    return ServedModel(assignment.name, assignment.revision, engine, codec, pace, memory, shown)


def size_of(artifact: Artifact) -> int:
    """Bytes of its files, as far as they can be seen."""
    if artifact.content is not None:
        return len(artifact.content)
    total = 0
    for name in artifact.names():
        with suppress(OSError):
            total += (artifact.path / name).stat().st_size
    return total
