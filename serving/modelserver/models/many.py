"""A server of many models: those of a folder, and those that load calls add."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp

from clusters.base.errors import KnodelError
from serving.engines.base.errors import LoadFailed
from serving.modelserver.base.assignment import Assignment, update_assignment
from serving.modelserver.base.errors import ServingError
from serving.modelserver.base.stats import Stats
from serving.modelserver.endpoints.app import SERVER_NAME
from serving.modelserver.endpoints.confirmation import Confirmation
from serving.modelserver.endpoints.pending_requests import PendingRequests
from serving.modelserver.endpoints.repository import READY, UNAVAILABLE, IndexEntry
from serving.modelserver.execution.lifecycle import Lifecycle
from serving.modelserver.execution.target import Target, unknown
from serving.modelserver.execution.workers import Workers
from serving.modelserver.model_host import Shared
from serving.modelserver.models.folder import FIRST, find_model, models_in, revision_of
from serving.modelserver.models.gauge import Gauge
from serving.modelserver.models.live import Live
from serving.modelserver.models.loads import Loads
from serving.modelserver.models.model import Model
from serving.modelserver.models.room import NoRoom
from serving.modelserver.models.routing import Router
from serving.modelserver.models.stats import ManyStats
from serving.modelserver.ports import Ports
from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

LOAD_THREADS: Final = 2  # one model is loaded at a time, and others leave meanwhile
HANGS_AFTER: Final = 1.0  # s beyond its time, which was long: then a load, or an unload, has lost its thread
FAILED: Final = "it cannot be loaded; the server's log has the details"


class ManyModels:
    """Those of `folder`, which are loaded while they fit, else when they are asked for. Made inside of the event loop.

    Raises BadOptions.
    """

    hold: PendingRequests | None = None  # each model has its own
    confirmation: Confirmation | None = None  # no record holds a server of many models

    def __init__(self, shared: Shared, stats: ManyStats, folder: Path) -> None:
        self._shared = shared
        self._stats = stats
        self._folder = folder
        self._workers = Workers(LOAD_THREADS, asyncio.get_running_loop(), HANGS_AFTER, shared.hanging)
        self._models: dict[str, Model] = {}
        options = shared.options
        gauge = Gauge(options.bounds, shared.limits)
        self._loads = Loads(
            self._models, self._workers, gauge, limit=options.memory_limit, timeout=options.load_timeout
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self.lifecycle = Lifecycle(self._workers)
        self.app: ASGIApp = Router(self._models, self.lifecycle)
        for assignment in models_in(folder, options.format, options.bounds):
            self._enter(self._model(assignment))

    @property
    def held(self) -> int:
        """How many requests wait for a model."""
        return sum(model.held for model in self._models.values())

    def attach(self, ports: Ports) -> None:
        """Route calls by gRPC as the data port routes requests."""
        self._shared.observability.assign(SERVER_NAME, "")
        ports.route_by(self)

    async def rehearse(self) -> None:
        """Nothing: who comes first waits for a model anyway."""

    async def load(self, _: Callable[[], Artifact] | None = None) -> None:
        """Load models, by name, until one does not fit; one that fails is told of by the index and ends nothing."""
        for model in list(self._models.values()):
            try:
                async with self._loads.turn:
                    if model.live is None:
                        await self._loads.bring(model, model.assignment, alone=True)
            except NoRoom as error:
                log.info("%s", error)
                break
            except Exception as error:  # whatever a library makes of a hostile model
                model.fail(_reason(model, error))
        self.lifecycle.hold()
        self._stats.mark_served()
        loaded = sum(model.live is not None for model in self._models.values())
        log.info("serving models=%d loaded=%d", len(self._models), loaded)

    @property
    def load_patience(self) -> float:
        """Seconds that a stop waits for `load`."""
        return 0.0

    def drain(self) -> float | None:
        """Not ready from now on; how long requests may still take, for which models are still loaded."""
        self.lifecycle.drain()
        return max((model.assignment.bounds.timeout for model in self._models.values()), default=None)

    def give_up(self) -> None:
        """Nobody waits for a model any more."""
        self.lifecycle.drain()
        for model in self._models.values():
            model.give_up(self.lifecycle.reason)

    async def close(self) -> None:
        """Let go of all models."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._loads.close()
        for model in self._models.values():
            model.close()
        self._workers.close()

    def index(self) -> Sequence[IndexEntry]:
        """All models."""
        return [model.entry() for model in self._models.values()]

    async def load_call(self, name: str, body: bytes) -> str:
        """Load a model, which may be loaded already: that answers until then. Raises KnodelError: all is as before."""
        async with self._loads.turn:
            model = self._models.get(name)
            known = await self._found(name) if model is None else model.upcoming
            assignment = update_assignment(known, body)
            model = model or self._model(assignment)
            try:
                await self._loads.bring(model, assignment)
            except Exception as error:  # as above
                model.reason = _reason(model, error)
                if isinstance(error, ServingError):
                    raise
                raise LoadFailed(model.reason) from error
            self._enter(model)
        return READY

    async def unload_call(self, name: str) -> str:
        """Unload a model, once all that is in it is answered; it stays so until a load call. Raises NotFound."""
        model = self._models.get(name)
        if model is None:
            raise unknown(name)
        async with self._loads.turn:  # a load that is under way would undo it
            live = model.live
            model.unload()
            leaving = None if live is None else self._loads.retire(model, live)
        if leaving is not None:
            await asyncio.shield(leaving)
        return UNAVAILABLE

    @asynccontextmanager
    async def using(self, name: str, *, work: bool) -> AsyncIterator[Target]:
        """The model for a call by another protocol than HTTP, loaded, and kept until the end. Raises ServingError."""
        model = self._models.get(name)
        if model is None:
            raise unknown(name)
        while (live := model.live) is None:
            await model.hold().wait(work=work)
        live.enter()
        try:
            yield _target(live)
        finally:
            live.leave()

    def ready(self, name: str, version: str) -> bool:
        """Whether requests for this model are welcome. Raises NotFound."""
        model = self._models.get(name)
        if model is None:
            raise unknown(name)
        unit = model.waiting() if model.live is None else model.live.unit
        Target(name, unit.assignment.revision, unit.inference).check(name, version)
        return unit.lifecycle.ready

    def _model(self, assignment: Assignment) -> Model:
        return Model(assignment, self._shared, Stats(time.monotonic), self._ask, time.monotonic)

    def _enter(self, model: Model) -> None:
        name = model.assignment.name
        self._models[name] = model
        self._stats.add(name, model.stats)

    async def _found(self, name: str) -> Assignment:
        """What has come to the folder since, or a model of which only the load call knows where it is."""
        options = self._shared.options
        find = partial(find_model, self._folder, name, options.format, options.bounds)
        found = await self._loads.allowance(name).do(lambda _: find())
        return found or Assignment(name, revision_of(name, FIRST), "", "", options.format, options.bounds)

    def _ask(self, model: Model) -> None:
        """Somebody waits for it."""
        task = asyncio.get_running_loop().create_task(self._load_on_use(model))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load_on_use(self, model: Model) -> None:
        try:
            async with self._loads.turn:
                if model.live is not None:
                    model.release()
                elif model.awaited:  # else it was unloaded by a call meanwhile
                    await self._loads.bring(model, model.assignment)
        except Exception as error:  # as above
            model.fail(_reason(model, error))


def _target(live: Live) -> Target:
    model = live.unit.assignment
    return Target(model.name, model.revision, live.unit.inference)


def _reason(model: Model, error: Exception) -> str:
    """Log why a model could not be loaded, and tell those who may know."""
    if isinstance(error, KnodelError):
        log.warning("model=%s cannot be loaded: %s", model.assignment.name, error)
        return str(error)
    log.exception("model=%s cannot be loaded", model.assignment.name, exc_info=error)
    return FAILED
