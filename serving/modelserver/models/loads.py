"""Bringing models into memory, and out of it again.

They are loaded one after the other, each in its `turn`: what one takes is measured by how the process grows, and two
that are loaded at once might both fit and not together. Who has the turn makes room first (`room`): by the size of the
files, or by what the model took the last time; and again by what it took now, before it is served. A turn ends: what
hangs in it is left alone in its thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from serving.modelserver.base.assignment import Assignment
from serving.modelserver.base.errors import NotReady
from serving.modelserver.base.stats import StartupTimes
from serving.modelserver.execution.lifecycle import ServedModel
from serving.modelserver.execution.loading import size_of
from serving.modelserver.execution.memory import give_back
from serving.modelserver.execution.workers import Workers
from serving.modelserver.model_host import Unit
from serving.modelserver.models.allowance import Allowance, TookTooLong
from serving.modelserver.models.gauge import Gauge
from serving.modelserver.models.live import Live
from serving.modelserver.models.model import Model
from serving.modelserver.models.room import Loaded, NoRoom, to_unload
from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

GRACE: Final = 15.0  # s beyond a request's deadline: what it leaves running, or what a slow caller has not read yet
CLOSED_WITHIN: Final = 15.0  # s; an engine frees memory then, or ends a process: one that takes longer hangs
_END: Final = 1.0  # s; nothing is in them any more when the server ends, but for inferences that hang
_MS: Final = 1000


class Loads:
    """Of `models`, by name, which may take `limit` bytes together (None: as many as there are), measured by `gauge`.

    `workers` do what brings models into memory and out of it; to fetch and load one may take `timeout` seconds. Used
    by one event loop.
    """

    def __init__(
        self, models: Mapping[str, Model], workers: Workers, gauge: Gauge, *, limit: int | None, timeout: float
    ) -> None:
        self._models = models
        self._workers = workers
        self._gauge = gauge
        self._limit = limit
        self._timeout = timeout
        self._leaving: set[asyncio.Task[None]] = set()
        self.turn = asyncio.Lock()

    def allowance(self, name: str) -> Allowance:
        """For what has to be done to load this model."""
        return Allowance(self._workers, name, self._timeout)

    async def bring(self, model: Model, assignment: Assignment, *, alone: bool = False) -> None:
        """Load and serve it, in whose turn this is; what answered before goes when it is idle.

        Others have to go for it, unless it comes `alone`. Raises StorageError, EngineError, NoRoom, and NotReady when
        it takes too long: all is as before.
        """
        unit, allowance = model.unit(assignment), self.allowance(assignment.name)
        model.loading = True
        try:
            served = await self._load(model, unit, allowance, alone)
        except BaseException:
            self._leave(self._close(unit))
            raise
        finally:
            model.loading, model.cost = False, allowance.spent
        former = model.serve(Live(unit, served.memory, time.monotonic))
        if former is not None:
            self.retire(model, former)

    def retire(self, model: Model, live: Live) -> asyncio.Task[None]:
        """Let nobody in any more, and let go of it when all that is in it is answered."""
        live.leaving = True
        return self._leave(self._let_go(model, live))

    async def close(self) -> None:
        """Return when those that are leaving have left, or soon."""
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=_END)

    def _leave(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    async def _load(self, model: Model, unit: Unit, allowance: Allowance, alone: bool) -> ServedModel:
        startup = StartupTimes()
        if model.live is None:
            model.stats.startup = startup  # to be looked at meanwhile
        fetched, size = await allowance.do(lambda _: _fetched(unit, startup))
        took = allowance.spent * _MS
        again = unit.assignment is model.assignment  # else its files are others, or may be
        await self._make_room(model, max(size, model.memory if again else 0), alone)
        take = fetched.pop  # nobody else keeps the bytes
        try:
            served = await unit.load(take, startup, gauge=self._gauge, run=allowance.do)
        except TookTooLong:
            model.hangs = True
            raise
        startup.fetch, startup.load = took, startup.load + took
        model.memory = served.memory
        await self._make_room(model, served.memory, alone)
        model.stats.startup = startup
        model.stats.mark_served(served.memory)
        return served

    async def _make_room(self, model: Model, needed: int, alone: bool) -> None:
        """Raises NoRoom."""
        if self._limit is None:
            return
        if self._leaving:
            await asyncio.wait(self._leaving)
        name, kept = model.assignment.name, 0 if model.live is None else model.live.memory
        while chosen := to_unload(name, needed, kept, self._others(model), self._limit):
            if alone:
                raise NoRoom(f"model {name!r} has no room beside those that are loaded: it is loaded when asked for")
            other = self._models[chosen[0]]
            log.info("unloading model=%s for model=%s", chosen[0], name)
            if other.live is not None:
                await asyncio.shield(self.retire(other, other.live))

    def _others(self, model: Model) -> list[Loaded]:
        return [
            Loaded(name, other.live.memory, other.live.in_use, other.live.used_at)
            for name, other in self._models.items()
            if other is not model and other.live is not None
        ]

    async def _let_go(self, model: Model, live: Live) -> None:
        await _ended(live)
        await self._close(live.unit)
        model.gone(live)
        give_back()
        log.info("unloaded model=%s revision=%s", live.unit.assignment.name, live.unit.assignment.revision)

    async def _close(self, unit: Unit) -> None:
        """In a thread, which is left alone when it hangs."""
        late = NotReady(f"its engine has not let go of it within {CLOSED_WITHIN:g} s")
        try:
            await self._workers.within(CLOSED_WITHIN, lambda _: unit.close(), late)
        except NotReady as error:
            log.warning("model=%s is not let go of: %s", unit.assignment.name, error)
        except Exception:  # engines run code of others
            log.exception("model=%s did not end well", unit.assignment.name)


def _fetched(unit: Unit, startup: StartupTimes) -> tuple[list[Artifact], int]:
    """Its files, for one to take, and their bytes. Raises StorageError."""
    files = unit.fetch(startup.download)
    return [files], size_of(files)


async def _ended(live: Live) -> None:
    """Return when no request is in it, nor an inference that nobody waits for; in time, whatever they do."""
    unit = live.unit
    try:
        async with asyncio.timeout(unit.assignment.bounds.timeout + GRACE):
            await live.quiet()
        async with asyncio.timeout(GRACE):
            await unit.workers.idle()
    except TimeoutError:
        log.warning("model=%s is unloaded though an inference in it has not ended", unit.assignment.name)
