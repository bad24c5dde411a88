"""From a storage URI to a model that is ready: fetch, load, warm up, each stage timed. Blocks; runs in a thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

from serving.engines.base import Engine, EngineOptions
from serving.engines.registry import find_format, loader_of
from serving.engines.warmup import warm_up
from serving.server.lifecycle import ServedModel
from serving.server.limits import Limits
from serving.server.options import ServerOptions
from serving.server.protocol_v2 import Codec
from serving.server.stats import Startup
from serving.storage.artifact import Artifact

log = logging.getLogger(__name__)

_MS = 1000


def load_model(
    options: ServerOptions,
    artifact: Future[Artifact],
    limits: Limits,
    startup: Startup,
    monotonic: Callable[[], float] = time.monotonic,
) -> ServedModel:
    """The model of the artifact; fills in `startup`. Raises StorageError, EngineError."""
    start = monotonic()
    engine = _engine(options, artifact.result())
    loaded = monotonic()
    pace = warm_up(engine)
    startup.load = (loaded - start) * _MS
    startup.warmup = (monotonic() - loaded) * _MS
    codec = Codec(options.name, options.revision, engine.signature, limits)
    return ServedModel(options.name, options.revision, engine, codec, pace)


def _engine(options: ServerOptions, artifact: Artifact) -> Engine:
    made = find_format(options.format, artifact.names())
    return loader_of(made)(artifact, EngineOptions(threads=options.threads))
