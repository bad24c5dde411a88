"""From a storage URI to a model that is ready: fetch, load, warm up, each stage timed. Blocks; runs in a thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from serving.engines.base import EngineOptions
from serving.engines.registry import find_format, loader_of
from serving.engines.warmup import warm_up
from serving.server.assignment import Assignment
from serving.server.lifecycle import ServedModel
from serving.server.limits import Limits
from serving.server.protocol_v2 import Codec
from serving.server.stats import Startup
from serving.storage.artifact import Artifact

log = logging.getLogger(__name__)

_MS = 1000


def load_model(
    assignment: Assignment,
    artifact: Callable[[], Artifact],
    limits: Limits,
    startup: Startup,
    *,
    engine_options: EngineOptions | None = None,
    warm: bool = True,
    monotonic: Callable[[], float] = time.monotonic,
) -> ServedModel:
    """The model of the artifact, warmed up unless not `warm`; fills in `startup`. Raises StorageError, EngineError."""
    start = monotonic()
    files = artifact()
    startup.fetch = (monotonic() - start) * _MS
    options = engine_options or EngineOptions(assignment.bounds.threads)
    engine = loader_of(find_format(assignment.format, files.names()))(files, options)
    codec = Codec(assignment.name, assignment.revision, engine.signature, limits)
    loaded = monotonic()
    pace = warm_up(engine) if warm else None
    startup.load = (loaded - start) * _MS
    startup.warmup = (monotonic() - loaded) * _MS
    return ServedModel(assignment.name, assignment.revision, engine, codec, pace)
