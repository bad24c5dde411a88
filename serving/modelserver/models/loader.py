"""Load models into memory, and unload them again.

Models are loaded one after the other, each holding `lock`. The memory of a model is measured as the growth of the
process, and two models that load at once might fit each but not together. The holder of the lock makes room first
(`room`): by the size of the files, or by the memory that the model took the last time, and again by its measured
memory before it is served. A load has a time limit; a thread that hangs in it is left running.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

from serving.modelserver.base.assignment import Assignment, ModelBounds
from serving.modelserver.base.errors import NotReady
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.stats import StartupTimes
from serving.modelserver.execution.lifecycle import ServedModel
from serving.modelserver.execution.loading import artifact_size
from serving.modelserver.execution.memory import resident_bytes, trim_allocator
from serving.modelserver.execution.workers import Job, Workers
from serving.modelserver.model_host import ModelHost
from serving.modelserver.models.loaded_revision import LoadedRevision
from serving.modelserver.models.repository_model import RepositoryModel
from serving.modelserver.models.room import EvictionCandidate, InsufficientMemory, choose_evictions
from serving.modelserver.pool.prewarm import prewarm_format
from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

T = TypeVar("T")

GRACE: Final = (
    15.0  # s beyond a request's deadline, for cancelled inferences and responses that slow clients still read
)
CLOSE_TIMEOUT: Final = 15.0  # s; an engine frees memory then, or ends a process; one that takes longer hangs
_SHUTDOWN_GRACE: Final = 1.0  # s; when the server ends, only inferences that hang can be left in the models
_MS: Final = 1000


class LoadTimeout(NotReady):
    """A load exceeded its time; its thread is left running."""


class LoadBudget:
    """A budget of `seconds` for all jobs that load the model `name`. A job that exceeds it is left running."""

    def __init__(self, workers: Workers, name: str, seconds: float) -> None:
        self.spent = 0.0  # s
        self._workers = workers
        self._name = name
        self._seconds = seconds

    async def run(self, job: Job[T]) -> T:
        """Return the result of `job`. Raises LoadTimeout, NotReady, and the errors of the job."""
        late = LoadTimeout(
            f"model {self._name!r} was not loaded within {self._seconds:g} s: "
            "check its store and its code for what blocks, or raise --load-timeout"
        )
        begun = time.monotonic()
        try:
            return await self._workers.run_within(self._seconds - self.spent, job, late)
        finally:
            self.spent += time.monotonic() - begun


class MemoryGauge:
    """Measures main memory before and after a load, without the memory that a format needs only once.

    The first model of a format fills the tables of its library. Those of ONNX Runtime take 20 MB, which later models do
    not need again and the first does not free. So a model of a few bytes is loaded before the first measurement.

    Used by one thread at a time, and by threads of loads that hung and ended after all, whose results are discarded.
    """

    def __init__(self, bounds: ModelBounds, limits: ServerLimits) -> None:
        self._bounds = bounds
        self._limits = limits
        self._prewarmed: set[str] = set()

    def __call__(self, format: str) -> int:
        """Return the memory in bytes. Raises EngineError when the engine cannot load even the small model."""
        if format not in self._prewarmed:
            prewarm_format(format, self._bounds, self._limits)
            self._prewarmed.add(format)
        trim_allocator()
        return resident_bytes()


class ModelLoader:
    """Loads and unloads `models`, which may take `limit` bytes together (None: unlimited), measured by `gauge`.

    `workers` fetch, load and close models. To fetch and load one may take `timeout` seconds. Not thread-safe: only the
    event loop may use it.
    """

    def __init__(
        self, models: Mapping[str, RepositoryModel], workers: Workers, gauge: MemoryGauge, *, limit: int | None,
        timeout: float,
    ) -> None:  # fmt: skip
        self._models = models
        self._workers = workers
        self._gauge = gauge
        self._limit = limit
        self._timeout = timeout
        self._unloading: set[asyncio.Task[None]] = set()
        self.lock = asyncio.Lock()

    def budget(self, name: str) -> LoadBudget:
        """Return a new time budget for the load of this model."""
        return LoadBudget(self._workers, name, self._timeout)

    async def load(self, model: RepositoryModel, assignment: Assignment, *, evict: bool = True) -> None:
        """Load and serve `assignment`; the caller holds `lock`. The former revision is unloaded when it is idle.

        Unloads other models to make room, unless `evict` is false. Raises StorageError, EngineError,
        InsufficientMemory, and NotReady when the time is over; the model is unchanged then.
        """
        host, budget = model.make_host(assignment), self.budget(assignment.name)
        model.loading = True
        try:
            served = await self._load(model, host, budget, evict)
        except BaseException:
            self._start_unload(self._close(host))
            raise
        finally:
            model.loading, model.load_seconds = False, budget.spent
        former = model.serve(LoadedRevision(host, served.memory, time.monotonic))
        if former is not None:
            self.unload(model, former)

    def unload(self, model: RepositoryModel, loaded: LoadedRevision) -> asyncio.Task[None]:
        """Accept no new requests, and close the model when those in flight are answered."""
        loaded.unloading = True
        return self._start_unload(self._unload(model, loaded))

    async def close(self) -> None:
        """Return when all started unloads have ended, or after a short grace period."""
        if self._unloading:
            await asyncio.wait(self._unloading, timeout=_SHUTDOWN_GRACE)

    def _start_unload(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)
        return task

    async def _load(self, model: RepositoryModel, host: ModelHost, budget: LoadBudget, evict: bool) -> ServedModel:
        startup = StartupTimes()
        if model.loaded is None:
            model.stats.startup = startup  # so that the progress can be read meanwhile

        def fetch(_: object) -> tuple[list[Artifact], int]:
            files = host.fetch(startup.download)
            return [files], artifact_size(files)

        fetched, size = await budget.run(fetch)
        took = budget.spent * _MS
        again = host.assignment is model.assignment  # otherwise its files may differ from the last ones
        await self._make_room(model, max(size, model.memory if again else 0), evict)
        take = fetched.pop  # keeps no second reference to the bytes
        try:
            served = await host.load(take, startup, gauge=self._gauge, run=budget.run)
        except LoadTimeout:
            model.hung = True
            raise
        startup.fetch, startup.load = took, startup.load + took
        model.memory = served.memory
        await self._make_room(model, served.memory, evict)
        model.stats.startup = startup
        model.stats.mark_served(served.memory)
        return served

    async def _make_room(self, model: RepositoryModel, needed: int, evict: bool) -> None:
        """Unload other models until `needed` bytes are available. Raises InsufficientMemory."""
        if self._limit is None:
            return
        if self._unloading:
            await asyncio.wait(self._unloading)
        name, kept = model.assignment.name, 0 if model.loaded is None else model.loaded.memory
        while True:
            candidates = [
                EvictionCandidate(name, other.loaded.memory, other.loaded.in_use, other.loaded.used_at)
                for name, other in self._models.items()
                if other is not model and other.loaded is not None
            ]
            chosen = choose_evictions(name, needed, kept, candidates, self._limit)
            if not chosen:
                return
            if not evict:
                raise InsufficientMemory(
                    f"model {name!r} does not fit beside the loaded models: it is loaded on its first request"
                )
            other = self._models[chosen[0]]
            log.info("unloading model=%s for model=%s", chosen[0], name)
            if other.loaded is not None:
                await asyncio.shield(self.unload(other, other.loaded))

    async def _unload(self, model: RepositoryModel, loaded: LoadedRevision) -> None:
        await _wait_idle(loaded)
        await self._close(loaded.host)
        model.remove(loaded)
        trim_allocator()
        log.info("unloaded model=%s revision=%s", loaded.host.assignment.name, loaded.host.assignment.revision)

    async def _close(self, host: ModelHost) -> None:
        """Close the model in a thread, which is left running when it hangs."""
        late = NotReady(f"its engine did not close within {CLOSE_TIMEOUT:g} s")
        try:
            await self._workers.run_within(CLOSE_TIMEOUT, lambda _: host.close(), late)
        except NotReady as error:
            log.warning("model=%s is not closed: %s", host.assignment.name, error)
        except Exception:  # engines run third-party code
            log.exception("closing model=%s failed", host.assignment.name)


async def _wait_idle(loaded: LoadedRevision) -> None:
    """Return when neither requests nor cancelled inferences are left in the model, or after a time limit."""
    host = loaded.host
    try:
        async with asyncio.timeout(host.assignment.bounds.timeout + GRACE):
            await loaded.wait_idle()
        async with asyncio.timeout(GRACE):
            await host.workers.wait_idle()
    except TimeoutError:
        log.warning("unloading model=%s although an inference in it has not ended", host.assignment.name)
