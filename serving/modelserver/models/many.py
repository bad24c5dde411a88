"""A server of many models: those of a folder, and those that load calls add."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from starlette.types import ASGIApp

from clusters.base.errors import KnodelError
from serving.engines.base.errors import LoadFailed
from serving.modelserver.base.assignment import Assignment, update_assignment
from serving.modelserver.base.errors import ServingError
from serving.modelserver.base.stats import StartupTimes, Stats
from serving.modelserver.endpoints.app import SERVER_NAME
from serving.modelserver.endpoints.confirmation import Confirmation
from serving.modelserver.endpoints.pending_requests import PendingRequests
from serving.modelserver.endpoints.repository import READY, UNAVAILABLE, IndexEntry
from serving.modelserver.execution.lifecycle import ModelLifecycle
from serving.modelserver.execution.target import InferenceTarget, unknown_model
from serving.modelserver.execution.workers import Workers
from serving.modelserver.model_host import ServerContext
from serving.modelserver.models.folder import FIRST, find_model, models_in, revision_of
from serving.modelserver.models.loader import MemoryGauge, ModelLoader
from serving.modelserver.models.repository_model import RepositoryModel
from serving.modelserver.models.room import InsufficientMemory
from serving.modelserver.models.routing import ModelRouter
from serving.modelserver.models.selection import SelectedModel
from serving.modelserver.openai.listing import model_names
from serving.modelserver.openai.upstreams import upstream_of
from serving.modelserver.ports import Ports
from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

LOAD_THREADS: Final = 2  # one loads a model while the other closes models
HUNG_AFTER: Final = 1.0  # s beyond the time limit of a load or unload, which is long; then its thread hangs
FAILED: Final = "the load failed; the server's log has the details"


class ManyStats(Stats):
    """The statistics of a server of many models: of each model, and their sums."""

    def __init__(self, monotonic: Callable[[], float], startup: StartupTimes | None = None) -> None:
        super().__init__(monotonic, startup=startup)
        self._models: dict[str, Stats] = {}

    def add(self, name: str, stats: Stats) -> None:
        """Add or replace the statistics of one model."""
        self._models[name] = stats

    @property
    def parts(self) -> Sequence[tuple[Mapping[str, str], Stats]]:
        """The statistics of each model with their metric labels."""
        return [({"model": name, "revision": stats.revision}, stats) for name, stats in self._models.items()]

    def to_json(self) -> dict[str, Any]:
        """Return the content of the page `/stats`."""
        models = {name: stats.to_json() for name, stats in self._models.items()}
        summed = ("slots", "active", "queued", "requests", "busySeconds", "memory")
        sums = {name: sum(page[name] for page in models.values()) for name in summed}
        counted = [page["tokens"] for page in models.values() if "tokens" in page]
        tokens = {kind: sum(counts[kind] for counts in counted) for kind in counted[0]} if counted else {}
        return {**super().to_json(), **sums, **({"tokens": tokens} if tokens else {}), "models": models}


class ManyModels:
    """The models of `folder`, loaded at the start while they fit, and otherwise on their first request.

    Create it inside the event loop. Raises BadOptions.
    """

    pending: PendingRequests | None = None  # each model has its own
    confirmation: Confirmation | None = None  # digests are not recorded for a server of many models

    def __init__(self, context: ServerContext, stats: ManyStats, folder: Path) -> None:
        self._context = context
        self._stats = stats
        self._folder = folder
        self._workers = Workers(LOAD_THREADS, asyncio.get_running_loop(), HUNG_AFTER, context.hung)
        self._models: dict[str, RepositoryModel] = {}
        options = context.options
        gauge = MemoryGauge(options.bounds, context.limits)
        self._loader = ModelLoader(
            self._models, self._workers, gauge, limit=options.memory_limit, timeout=options.load_timeout
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self.lifecycle = ModelLifecycle(self._workers)
        selected = SelectedModel(self._models, context.budget, context.limits.body)
        self.app: ASGIApp = ModelRouter(self._models, self.lifecycle, selected, self._language_models)
        for assignment in models_in(folder, options.format, options.bounds):
            self._add(self._make_model(assignment))

    @property
    def waiting_requests(self) -> int:
        """Number of requests that wait for a model."""
        return sum(model.waiting_requests for model in self._models.values())

    def attach(self, ports: Ports) -> None:
        """Route gRPC calls by the name of their model, as the data port routes HTTP requests."""
        self._context.observability.assign(SERVER_NAME, "")
        ports.serve_directory(self)

    async def prewarm(self) -> None:
        """Do nothing: the first request of a model waits for its load anyway."""

    async def load(self, _: Callable[[], Artifact] | None = None) -> None:
        """Load models, by name, until one does not fit. The index reports a model that fails, and others follow."""
        for model in list(self._models.values()):
            try:
                async with self._loader.lock:
                    if model.loaded is None:
                        await self._loader.load(model, model.assignment, evict=False)
            except InsufficientMemory as error:
                log.info("%s", error)
                break
            except Exception as error:  # a library may raise any error for a malicious model
                model.fail(_log_failure(model, error))
        self.lifecycle.queue_before_load()
        self._stats.mark_served()
        loaded = sum(model.loaded is not None for model in self._models.values())
        log.info("serving models=%d loaded=%d", len(self._models), loaded)

    @property
    def stop_grace(self) -> float:
        """Seconds that a stop waits for `load`: none."""
        return 0.0

    def drain(self) -> float | None:
        """Become unready; return how many seconds requests may take. Models are still loaded for them."""
        self.lifecycle.drain()
        return max((model.assignment.bounds.timeout for model in self._models.values()), default=None)

    def refuse_waiting(self) -> None:
        """Answer all requests that wait for a model with an error."""
        self.lifecycle.drain()
        for model in self._models.values():
            model.refuse_waiting(self.lifecycle.reason)

    async def close(self) -> None:
        """Close all models."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._loader.close()
        for model in self._models.values():
            model.close()
        self._workers.close()

    def index(self) -> Sequence[IndexEntry]:
        """Return the entries of all models."""
        return [model.entry() for model in self._models.values()]

    async def load_call(self, name: str, body: bytes) -> str:
        """Load a model, or a new revision of a loaded one, which answers until then.

        Raises KnodelError; the model is unchanged then.
        """
        async with self._loader.lock:
            model = self._models.get(name)
            known = await self._find(name) if model is None else model.upcoming
            assignment = update_assignment(known, body)
            model = model or self._make_model(assignment)
            try:
                await self._loader.load(model, assignment)
            except Exception as error:  # as in `load`
                model.reason = _log_failure(model, error)
                if isinstance(error, ServingError):
                    raise
                raise LoadFailed(model.reason) from error
            self._add(model)
        return READY

    async def unload_call(self, name: str) -> str:
        """Unload a model when its requests in flight are answered; only a load call loads it again.

        Raises ResourceNotFound.
        """
        model = self._models.get(name)
        if model is None:
            raise unknown_model(name)
        async with self._loader.lock:  # a load in progress would undo it
            loaded = model.loaded
            model.unload()
            unloading = None if loaded is None else self._loader.unload(model, loaded)
        if unloading is not None:
            await asyncio.shield(unloading)
        return UNAVAILABLE

    @asynccontextmanager
    async def using(self, name: str, *, work: bool) -> AsyncIterator[InferenceTarget]:
        """Load the model for a gRPC call, and keep it loaded until the call ends. Raises ServingError."""
        model = self._models.get(name)
        if model is None:
            raise unknown_model(name)
        while (loaded := model.loaded) is None:
            await model.pending().wait(work=work)
        loaded.acquire()
        try:
            yield InferenceTarget(name, loaded.host.assignment.revision, loaded.host.inference)
        finally:
            loaded.release()

    def ready(self, name: str, version: str) -> bool:
        """Return whether the model accepts requests. Raises ResourceNotFound."""
        model = self._models.get(name)
        if model is None:
            raise unknown_model(name)
        host = model.next_host() if model.loaded is None else model.loaded.host
        InferenceTarget(name, host.assignment.revision, host.inference).check(name, version)
        return host.lifecycle.ready

    def _language_models(self) -> Sequence[str]:
        """Return the names of the loaded language models and of their adapters."""
        found = []
        for name, model in self._models.items():
            if model.loaded is not None and (upstream := upstream_of(model.loaded.host.lifecycle.model().engine)):
                found += model_names(name, upstream.adapters.names)
        return found

    def _make_model(self, assignment: Assignment) -> RepositoryModel:
        return RepositoryModel(assignment, self._context, Stats(time.monotonic), self._request_load, time.monotonic)

    def _add(self, model: RepositoryModel) -> None:
        name = model.assignment.name
        self._models[name] = model
        self._stats.add(name, model.stats)

    async def _find(self, name: str) -> Assignment:
        """Return the assignment of a model that is new in the folder, or one that the load call must complete."""
        options = self._context.options
        find = partial(find_model, self._folder, name, options.format, options.bounds)
        found = await self._loader.budget(name).run(lambda _: find())
        return found or Assignment(name, revision_of(name, FIRST), "", "", options.format, options.bounds)

    def _request_load(self, model: RepositoryModel) -> None:
        """Load the model in a new task, because requests wait for it."""

        async def load() -> None:
            try:
                async with self._loader.lock:
                    if model.loaded is not None:
                        model.answer_waiting()
                    elif model.awaited:  # otherwise a call has unloaded it meanwhile
                        await self._loader.load(model, model.assignment)
            except Exception as error:  # as in `load`
                model.fail(_log_failure(model, error))

        task = asyncio.get_running_loop().create_task(load())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _log_failure(model: RepositoryModel, error: Exception) -> str:
    """Log a failed load, and return the reason for the repository index."""
    if isinstance(error, KnodelError):
        log.warning("model=%s cannot be loaded: %s", model.assignment.name, error)
        return str(error)
    log.exception("model=%s cannot be loaded", model.assignment.name, exc_info=error)
    return FAILED
