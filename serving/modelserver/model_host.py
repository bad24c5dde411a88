"""One model of a server: all that answers for it, from its assignment to its end."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import Final

import msgspec
from starlette.types import ASGIApp

from serving.engines.base.engine import EngineOptions
from serving.engines.base.errors import Cancelled
from serving.modelserver.base.assignment import Assignment, ModelBounds
from serving.modelserver.base.limits import BodyBudget, ServerLimits
from serving.modelserver.base.options import ServerOptions
from serving.modelserver.base.stats import DownloadProgress, StartupTimes, Stats
from serving.modelserver.endpoints.app import DataApp
from serving.modelserver.endpoints.endpoints import make_endpoints
from serving.modelserver.execution.admission import Admission
from serving.modelserver.execution.hanging import Hanging
from serving.modelserver.execution.inference import Inference
from serving.modelserver.execution.lifecycle import Lifecycle, ServedModel
from serving.modelserver.execution.loading import load_model
from serving.modelserver.execution.memory import at_once
from serving.modelserver.execution.stacks import levels, stack_for, waiting_threads
from serving.modelserver.execution.workers import Job, Workers
from serving.modelserver.observe.observability import Observability
from serving.storage.base.artifact import Artifact
from serving.storage.fetch import fetch

log = logging.getLogger(__name__)

LEAST_THREADS: Final = 4  # so that one long inference does not keep the others out, however little CPU there is


class Shared(msgspec.Struct, frozen=True):
    """What all models of a server have in common."""

    options: ServerOptions
    limits: ServerLimits
    budget: BodyBudget
    hanging: Hanging
    observability: Observability


class Unit:
    """The model of `assignment`, from before it is loaded. Made inside of the event loop."""

    def __init__(
        self, assignment: Assignment, shared: Shared, stats: Stats, workers: Workers, lifecycle: Lifecycle
    ) -> None:
        workers.resize(threads_of(assignment.bounds))  # until it is known what its engine is like
        self.assignment = assignment
        self.lifecycle = lifecycle
        self.workers = workers
        self._shared = shared
        self._stats = stats
        self._lock = threading.Lock()  # of the two below: a model may come from a thread that nobody waits for
        self._model: ServedModel | None = None
        self._closed = False

    @cached_property
    def inference(self) -> Inference:
        """What all protocols end in."""
        bounds, shared = self.assignment.bounds, self._shared
        admission = Admission(bounds.slots, shared.options.queue, self._stats)
        loop = asyncio.get_running_loop()
        return shared.observability.inference(self.lifecycle, admission, self.workers, bounds, loop)

    @cached_property
    def app(self) -> ASGIApp:
        """What answers for it over HTTP."""
        name, revision = self.assignment.name, self.assignment.revision
        endpoints = make_endpoints(name, self.inference, self._shared.budget)
        return self._shared.observability.logged(DataApp(name, revision, self.lifecycle, endpoints), name, revision)

    def fetch(self, progress: DownloadProgress) -> Artifact:
        """Its files; blocks. Raises StorageError."""
        options, model = self._shared.options, self.assignment
        return fetch(model.storage_uri, model.digest, options.cache, options.allow_hosts, progress=progress)

    def announce(self) -> None:
        """What is counted is its from now on."""
        self._stats.revision, self._stats.slots = self.assignment.revision, self.assignment.bounds.slots

    async def load(
        self, artifact: Callable[[], Artifact], startup: StartupTimes, *, warm: bool = True,
        gauge: Callable[[str], int] = at_once, run: Callable[[Job[ServedModel]], Awaitable[ServedModel]] | None = None,
        confirmed: Callable[[], Awaitable[None]] | None = None,
    ) -> ServedModel:  # fmt: skip
        """Load it in a thread, so that health is answered meanwhile; fills in `startup`. Options as of `load_model`.

        `run` does a job in a thread, else one of its own does. The loaded model is served once `confirmed` returns.
        Raises StorageError, EngineError, and as `run`.
        """
        given = self._shared.options
        options = EngineOptions(self.assignment.bounds.threads, given.allow_code, given.signature)
        job = partial(
            load_model, self.assignment, artifact, self._shared.limits, startup, engine_options=options, warm=warm,
            gauge=gauge,
        )  # fmt: skip
        loading = (run or self._run)(lambda _: self._keep(job()))
        _ = self.app  # made while the thread is at work
        model = await loading
        if model.engine.waits:  # one thread for each inference, which mostly waits for it
            stack = stack_for(levels())
            self.workers.resize(waiting_threads(self.assignment.bounds.slots, stack), stack)
        if confirmed is not None:
            await confirmed()
        self.lifecycle.serve(model)
        log.info(
            "serving model=%s revision=%s platform=%s imports=%.0fms load=%.0fms warmup=%.0fms",
            model.name, model.revision, model.signature.platform, startup.imports, startup.load, startup.warmup,
        )  # fmt: skip
        return model

    def close(self) -> None:
        """Let go of the model, if there is one, or as soon as there is; blocks as long as its engine does."""
        self.workers.close()
        self.lifecycle.end()
        with self._lock:
            model, self._model = self._model, None
            self._closed = True
        if model is not None:
            model.engine.close()

    def _run(self, job: Job[ServedModel]) -> Awaitable[ServedModel]:
        return self.workers.submit(job).answer

    def _keep(self, model: ServedModel) -> ServedModel:
        """Until `close`, which may have been first: a load that hung may end one day. Raises Cancelled."""
        with self._lock:
            if not self._closed:
                self._model = model
                return model
        model.engine.close()
        raise Cancelled(f"nobody waits for model {model.name!r} any more")


def threads_of(bounds: ModelBounds) -> int:
    """How many inferences of a model that may compute run at once, each in a thread."""
    return min(bounds.slots, max(LEAST_THREADS, 2 * math.ceil(bounds.cpu)))
