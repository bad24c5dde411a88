"""Run one component as one of several replicas: all replicas watch, and the holder of the Lease acts.

    start      informers list → ready, also as a standby → acquire the Lease → informers catch up → controllers run
    Lease lost cancel the controllers at once, compose the component again, and become a candidate
    settings   changed: compose the component again and keep the Lease
    shutdown   cancel the controllers, then release the Lease, so that the next leader acts at once

While the API server is unavailable, informers and candidates retry; the process does not end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.base.api import Cluster
from clusters.base.errors import KnodelError
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers, InformerSets
from clusters.runtime.lease import LeaderLease, LeaseLost
from clusters.runtime.manager.fence import FencedCluster
from clusters.runtime.manager.metrics import Family, Histogram, controller_families, informer_families, one

log = logging.getLogger(__name__)

RELEASE_WITHIN = 3.0
"""s to release the Lease at shutdown; if the API server does not respond, the Lease expires."""


@dataclass(frozen=True, slots=True)
class Component:
    """The component of a process. Only a leader calls `run`, after the informers have caught up.

    `families` returns the component's own metrics for each scrape.
    """

    informers: Informers | InformerSets
    controllers: Sequence[Controller]
    run: Callable[[], Coroutine[Any, Any, None]]
    families: Callable[[], Iterable[Family | Histogram]] = tuple


class Manager:
    """One replica of a component, for the duration of `run`."""

    def __init__(
        self,
        cluster: Cluster,
        lease: LeaderLease,
        make: Callable[[Cluster], Component],
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        """`make` composes the component over a fenced cluster, again each time that `changed` returns."""
        self._cluster = cluster
        self._lease = lease
        self._make = make
        self._changed = changed
        self._component: Component | None = None
        self._synced = asyncio.Event()
        self._leading = asyncio.Event()
        self._following = asyncio.Event()
        self._following.set()
        self._compositions = 0

    @property
    def ready(self) -> bool:
        """Return whether the informers have their lists, so that this replica can take over at once."""
        return self._synced.is_set()

    @property
    def leads(self) -> bool:
        """Return whether this replica leads."""
        return self._leading.is_set() and self._lease.valid

    def families(self) -> Iterable[Family | Histogram]:
        """Yield the metrics of this replica."""
        yield one("knodel_leader", "gauge", "1 while this replica leads.", float(self.leads))
        yield one("knodel_compositions_total", "counter", "Starts, lost Leases, new settings.", self._compositions)
        if self._component is not None:
            yield from controller_families(self._component.controllers)
            yield from informer_families(self._component.informers)
            yield from self._component.families()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`. Raises the error of a part that ended by itself."""
        work, campaign = asyncio.create_task(self._work()), asyncio.create_task(self._campaign())
        try:
            await _until(stop.wait(), (work, campaign))
        finally:
            await _end(work)  # while the Lease is still renewed
            await _end(campaign)
            await self._release()

    async def _release(self) -> None:
        if not self._lease.valid:
            return
        try:
            async with asyncio.timeout(RELEASE_WITHIN):
                await self._lease.release()
        except TimeoutError:
            log.warning("the Lease was not released within %g s and will expire", RELEASE_WITHIN)

    async def _campaign(self) -> None:
        """Acquire and hold the Lease, again each time that it is lost."""
        while True:
            await self._synced.wait()
            fencing = await self._lease.acquire()
            log.info("this replica leads (term %d)", fencing)
            self._following.clear()
            self._leading.set()
            try:
                await self._lease.hold()
            except LeaseLost as lost:
                log.warning("this replica no longer leads: %s", lost)
            finally:
                self._leading.clear()
                self._following.set()

    async def _work(self) -> None:
        while True:
            self._compositions += 1
            component = self._component = self._make(FencedCluster(self._cluster, self._lease))
            watching = asyncio.create_task(component.informers.run())
            acting = asyncio.create_task(self._act(component))
            try:
                await _until(self._outdated(), (acting, watching))
            finally:
                self._synced.clear()
                await _end(acting, watching)

    async def _act(self, component: Component) -> None:
        await component.informers.synced()
        self._synced.set()
        await self._leading.wait()
        await component.informers.caught_up()  # including the last writes of the former leader
        await component.run()

    async def _outdated(self) -> None:
        """Return when the component must be composed again: the settings changed, or the leadership is lost."""

        async def lose() -> None:
            await self._leading.wait()
            await self._following.wait()

        tasks = {asyncio.ensure_future(self._changed()), asyncio.create_task(lose())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            await _end(*tasks)


async def _until(wanted: Coroutine[Any, Any, object], parts: Iterable[asyncio.Task[None]]) -> None:
    """Wait for `wanted`. If a part ends before, raise its error, or KnodelError."""
    waiting = asyncio.create_task(wanted)
    try:
        await asyncio.wait({waiting, *parts}, return_when=asyncio.FIRST_COMPLETED)
        for part in parts:
            if part.done():
                part.result()
                raise KnodelError("a part of the process ended unexpectedly: see the log")
        await waiting
    finally:
        await _end(waiting)


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended, even when this is cancelled meanwhile.

    Their errors are raised where the tasks are awaited.
    """
    for task in tasks:
        task.cancel()
    cancelled = None
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        if not task.cancelled():
            task.exception()
    if cancelled is not None:
        raise cancelled
