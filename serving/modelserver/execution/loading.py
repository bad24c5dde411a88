"""Load a model from its artifact: fetch, load, warm up, each stage timed. Blocks, so it runs in a thread.

The memory of a model is the growth of this process and its children during load and warm-up, and at least the size of
its files. A gauge measures it and receives the name of the model's format. The engine is imported before the first
measurement, so the import does not count.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from serving.engines.base.container_limits import container_limits
from serving.engines.base.engine import Adapter, EngineOptions, LlmOptions
from serving.engines.base.errors import LoadFailed
from serving.engines.base.ray_options import RayOptions
from serving.engines.base.registry import LLM_FORMATS, RAY, RAY_SERVICE, find_format, find_loader
from serving.engines.base.warmup import warm_up
from serving.engines.layouts.detect import find_layout
from serving.modelserver.base.assignment import Assignment, BatchBounds
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.options import ServerOptions
from serving.modelserver.base.stats import StartupTimes
from serving.modelserver.codec.protocol_v2 import V2Codec
from serving.modelserver.execution.example import MAX_SHOWN, decode_example, read_example
from serving.modelserver.execution.lifecycle import ServedModel
from serving.modelserver.execution.memory import quick_gauge
from serving.storage.base.artifact import Artifact
from serving.storage.base.service import service_url

log = logging.getLogger(__name__)

_MS = 1000
_MLFLOW = ("mlflow", "pyfunc")


def load_model(
    assignment: Assignment,
    artifact: Callable[[], Artifact],
    limits: ServerLimits,
    startup: StartupTimes,
    *,
    engine_options: EngineOptions | None = None,
    warm: bool = True,
    gauge: Callable[[str], int] = quick_gauge,
    monotonic: Callable[[], float] = time.monotonic,
) -> ServedModel:
    """Load the model of `artifact`, warm it up if `warm`, and record the stages in `startup`.

    Raises StorageError, EngineError.
    """
    start = monotonic()
    fetched = artifact()
    startup.fetch = (monotonic() - start) * _MS
    startup.digest = fetched.digest
    layout = find_layout(fetched, assignment.name)
    files = layout.artifact
    options = engine_options or EngineOptions(assignment.bounds.threads)
    if service_url(assignment.storage_uri):
        found = RAY_SERVICE
    else:
        found = find_format(assignment.format or layout.format, files.names(), allow_code=options.allow_code)
    startup.format = found.name
    if options.llm != LlmOptions() and found.name not in LLM_FORMATS:
        raise LoadFailed(f"{files.uri}: format {found.name} has no options of a language model: omit them")
    if options.ray != RayOptions() and found.name != RAY:
        raise LoadFailed(f"{files.uri}: format {found.name} has no options of Ray: omit --ray-application")
    load = find_loader(found)
    before = gauge(found.name)
    engine = load(files, options)
    try:
        engine = layout.adapt(engine)
        codec = V2Codec(assignment.name, assignment.revision, engine.signature, limits)
        loaded = monotonic()
        startup.load = (loaded - start) * _MS
        example = read_example(files, limits.body) or layout.example
        if example is None and found.name in _MLFLOW:
            from serving.modelserver.execution.mlflow_example import mlflow_example  # few models need it

            example = mlflow_example(files, codec)
        own: bytes | None = getattr(engine, "example", None)  # of a server of its own, which has warmed itself up
        example, warm = example or own, warm and own is None
        inputs = decode_example(example, codec, files.uri) if warm and example is not None else None
        pace = warm_up(engine, inputs) if warm else None
    except BaseException:
        engine.close()
        raise
    startup.warmup = (monotonic() - loaded) * _MS
    memory = max(gauge(found.name) - before, artifact_size(files))
    shown = example if example is not None and len(example) <= MAX_SHOWN else None
    hint = None if assignment.bounds.batching is not None else layout.batching
    batching = None if hint is None else BatchBounds(hint.max_size, hint.max_latency)
    return ServedModel(assignment.name, assignment.revision, engine, codec, pace, memory, shown, batching)


def make_engine_options(
    options: ServerOptions, model: Assignment, adapters: Sequence[Adapter], *, dynamic: bool = False
) -> EngineOptions:
    """Return the options of the model's engine. `adapters` are fetched. `dynamic`: they change while it serves."""
    llm = model.llm
    return EngineOptions(
        threads=model.bounds.threads,
        allow_code=options.allow_code,
        signature=options.signature,
        name=model.name,
        slots=model.bounds.engine_slots,
        memory=options.memory_limit or container_limits().memory,
        timeout=model.bounds.timeout,
        llm=LlmOptions(
            llm.context_length,
            llm.embeddings,
            tuple(adapters),
            llm.tool_parser,
            tuple(sorted(llm.engine_args.items())),
            dynamic,
        ),
        group=options.group,
        ray=model.ray.options()._replace(service=service_url(model.storage_uri)),
        allow_hosts=options.allow_hosts,
        alone=options.models is None,
    )


def artifact_size(artifact: Artifact) -> int:
    """Return the total size in bytes of the artifact's files, without files that cannot be read."""
    if artifact.content is not None:
        return len(artifact.content)
    total = 0
    for name in artifact.names():
        with suppress(OSError):
            total += (artifact.path / name).stat().st_size
    return total
