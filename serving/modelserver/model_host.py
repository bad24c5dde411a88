"""Host one model of a server: load it, serve it over HTTP, close it."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.types import ASGIApp

from serving.engines.base.errors import Cancelled
from serving.modelserver.base.adapter_list import AdapterListFile
from serving.modelserver.base.assignment import Assignment, BatchBounds, ModelBounds
from serving.modelserver.base.limits import BodyBudget, ServerLimits
from serving.modelserver.base.options import ServerOptions
from serving.modelserver.base.stats import DownloadProgress, StartupTimes, Stats
from serving.modelserver.endpoints.app import DataApp
from serving.modelserver.endpoints.endpoints import make_endpoints
from serving.modelserver.execution.adapters import fetch_adapters
from serving.modelserver.execution.inference import Inference
from serving.modelserver.execution.lifecycle import ModelLifecycle, ServedModel
from serving.modelserver.execution.loading import load_model, make_engine_options
from serving.modelserver.execution.memory import quick_gauge
from serving.modelserver.execution.slot_queue import SlotQueue
from serving.modelserver.execution.workers import HungThreads, Job, Workers, nesting_limit, stack_for, waiting_threads
from serving.modelserver.observe.observability import Observability
from serving.modelserver.openai.upstreams import upstream_of
from serving.storage.base.artifact import Artifact
from serving.storage.fetch import fetch
from serving.storage.transfer.progress import Progress, ignore_progress

if TYPE_CHECKING:
    from serving.modelserver.openai.adapters import AdapterSync

log = logging.getLogger(__name__)

MIN_THREADS: Final = 4  # even with little CPU, so that one long inference does not block the others


class ServerContext(msgspec.Struct, frozen=True):
    """The parts of a server that all its models share."""

    options: ServerOptions
    limits: ServerLimits
    budget: BodyBudget
    hung: HungThreads
    observability: Observability


class ModelHost:
    """Hosts the model of `assignment`, before and after it is loaded. Create it inside the event loop."""

    def __init__(
        self, assignment: Assignment, context: ServerContext, stats: Stats, workers: Workers, lifecycle: ModelLifecycle
    ) -> None:
        workers.resize(compute_threads(assignment.bounds))  # until the engine is loaded and known
        self.assignment = assignment
        self.bounds = assignment.bounds  # with the batching that the model's files describe, once it is loaded
        self.lifecycle = lifecycle
        self.workers = workers
        self._context = context
        self._stats = stats
        self._lock = threading.Lock()  # of `_model`, `_files`, `_closed`: a load that hung may still end in its thread
        self._model: ServedModel | None = None
        self._files = ExitStack()  # that the loaded model needs
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._following: asyncio.Task[None] | None = None

    @cached_property
    def inference(self) -> Inference:
        """The inference of the model, shared by all protocols."""
        bounds, context = self.assignment.bounds, self._context
        slots = SlotQueue(bounds.slots, context.options.queue, self._stats)
        loop = asyncio.get_running_loop()
        return context.observability.inference(self.lifecycle, slots, self.workers, bounds, loop)

    @cached_property
    def app(self) -> ASGIApp:
        """The ASGI application of the model."""
        name, revision = self.assignment.name, self.assignment.revision
        endpoints = make_endpoints(name, self.inference, self._context.budget, self._context.observability.llm)
        return self._context.observability.log_payloads(
            DataApp(name, revision, self.lifecycle, endpoints), name, revision
        )

    def fetch(self, progress: DownloadProgress) -> Artifact:
        """Return the model's files; blocks. Raises StorageError."""
        model = self.assignment
        return self._fetch(model.storage_uri, model.digest, progress=progress)

    def label_stats(self) -> None:
        """Set the revision and the slots of the model in its statistics."""
        self._stats.revision, self._stats.slots = self.assignment.revision, self.bounds.slots

    async def load(
        self, artifact: Callable[[], Artifact], startup: StartupTimes, *, warm: bool = True,
        gauge: Callable[[str], int] = quick_gauge,
        run: Callable[[Job[ServedModel]], Awaitable[ServedModel]] | None = None,
        confirm: Callable[[], Awaitable[None]] | None = None,
    ) -> ServedModel:  # fmt: skip
        """Load the model in a thread, so that the loop answers health checks meanwhile, and record it in `startup`.

        `warm` and `gauge` are as in `load_model`. `run` runs a job in a thread; by default a worker of this model does.
        The model is served once `confirm` has returned. Raises StorageError, EngineError, and the errors of `run`.
        """
        job = partial(load_model, self.assignment, artifact, self._context.limits, startup, warm=warm, gauge=gauge)

        def load(_: object) -> ServedModel:
            with ExitStack() as files:
                sync = self._adapter_sync(files)
                sources = self.assignment.llm.adapters
                adapters = fetch_adapters(sources, self._fetch, files) if sync is None else sync.prepare()
                dynamic = sync is not None
                options = make_engine_options(self._context.options, self.assignment, adapters, dynamic=dynamic)
                model = job(engine_options=options)
                kept = self._keep(model, files)
                if sync is not None:
                    sync.attach(model.engine)
                return kept

        loading = self.workers.submit(load).result if run is None else run(load)
        _ = self.app  # built while the thread is at work
        model = await loading
        if model.batching is not None:
            self._start_batching(model.batching)
        upstream = upstream_of(model.engine)
        if upstream is not None:
            self.inference.set_slots(upstream.slots)
            self._stats.slots = upstream.slots
        if model.engine.is_async:  # one thread for each inference, which mostly waits for the engine
            stack = stack_for(nesting_limit())
            slots = self.bounds.slots if upstream is None else upstream.slots
            self.workers.resize(waiting_threads(slots, stack), stack)
        if confirm is not None:
            await confirm()
        if upstream is not None:
            from serving.modelserver.openai.following import count_tokens, follow  # few models need them

            count_tokens(upstream, self._stats)
            self._following = self._loop.create_task(follow(upstream, self.lifecycle, self._stats))
        self.lifecycle.set_model(model)
        self._context.observability.metrics.serves_own_paths = self.lifecycle.serves_own_paths
        log.info(
            "serving model=%s revision=%s platform=%s imports=%.0fms load=%.0fms warmup=%.0fms",
            model.name, model.revision, model.signature.platform, startup.imports, startup.load, startup.warmup,
        )  # fmt: skip
        return model

    def close(self) -> None:
        """Close the model now, or as soon as its load ends; blocks as long as the engine's `close` does."""
        self.workers.close()
        if self._following is not None:
            self._loop.call_soon_threadsafe(self._following.cancel)
        self.lifecycle.remove_model()
        with self._lock:
            model, self._model = self._model, None
            self._closed = True
        if model is not None:
            model.engine.close()
        self._files.close()

    def _start_batching(self, batching: BatchBounds) -> None:
        """Batch requests as the model's files describe, since the Model sets no batching."""
        given = self.assignment.bounds
        self.bounds = msgspec.structs.replace(given, batching=batching)
        self.workers.resize(compute_threads(self.bounds))
        batcher = self._context.observability.batcher(batching, self.workers, asyncio.get_running_loop())
        self.inference.start_batching(batcher, self.bounds.slots)
        self._stats.slots = self.bounds.slots

    def _fetch(self, uri: str, digest: str, progress: Progress = ignore_progress) -> Artifact:
        options = self._context.options
        return fetch(uri, digest, options.cache, options.allow_hosts, progress=progress)

    def _adapter_sync(self, files: ExitStack) -> AdapterSync | None:
        """Return what follows the platform's list of adapters until `files` is closed; None without such a list."""
        folder = self._context.options.adapters
        if folder is None:
            return None
        from serving.modelserver.openai.adapters import AdapterSync  # few models need it

        list_file = AdapterListFile(folder, self.assignment.revision)
        sync = AdapterSync(self.assignment.name, list_file, self._fetch, self._stats)
        files.callback(sync.close)
        return sync

    def _keep(self, model: ServedModel, files: ExitStack) -> ServedModel:
        """Keep the loaded model and its files for `close`.

        Raises Cancelled when `close` came first, because the load hung.
        """
        with self._lock:
            if not self._closed:
                self._model, self._files = model, files.pop_all()
                return model
        model.engine.close()
        raise Cancelled(f"the load of model {model.name!r} was cancelled")


def compute_threads(bounds: ModelBounds) -> int:
    """Return how many inferences of a model that computes may run at once, each in a thread."""
    return min(bounds.slots, max(MIN_THREADS, 2 * math.ceil(bounds.cpu)))
