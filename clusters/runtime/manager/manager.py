"""Runs one component as one of several replicas: all of them watch, the one that holds the Lease acts.

    start      informers fill → ready, as a standby too → the Lease is taken → informers catch up → controllers run
    Lease lost controllers are cancelled at once, everything is made anew, and this process is a candidate again
    settings   changed: everything is made anew, the Lease is kept
    end        controllers are cancelled, then the Lease is given back, so that the next one acts at once

The API server's absence is no reason to end: informers and the candidate go on trying.
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
from clusters.runtime.informer import Informers
from clusters.runtime.informer_sets import InformerSets
from clusters.runtime.lease import LeaderLease, LeaseLost
from clusters.runtime.manager.fence import FencedCluster
from clusters.runtime.manager.metrics import Family, controller_families, informer_families, one

log = logging.getLogger(__name__)

RELEASE_WITHIN = 3.0
"""s for giving the Lease back at the end; where the API server is silent it runs out by itself."""


@dataclass(frozen=True, slots=True)
class Component:
    """What one process does: `run` acts, and is called by a leader only, once the informers have caught up.

    `families`: metrics of its own, read when somebody asks.
    """

    informers: Informers | InformerSets
    controllers: Sequence[Controller]
    run: Callable[[], Coroutine[Any, Any, None]]
    families: Callable[[], Iterable[Family]] = tuple


class Manager:
    """One replica, from `run` to the end of `run`."""

    def __init__(
        self,
        cluster: Cluster,
        lease: LeaderLease,
        make: Callable[[Cluster], Component],
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        """`make` composes the component over a cluster that only a leader writes to; `changed` returns when anew."""
        self._cluster = cluster
        self._lease = lease
        self._make = make
        self._changed = changed
        self._component: Component | None = None
        self._synced = asyncio.Event()
        self._leading = asyncio.Event()
        self._following = asyncio.Event()
        self._following.set()
        self._made = 0

    @property
    def ready(self) -> bool:
        """Whether this replica knows the world, and can take over at once."""
        return self._synced.is_set()

    @property
    def leads(self) -> bool:
        """Whether this replica acts."""
        return self._leading.is_set() and self._lease.valid

    def families(self) -> Iterable[Family]:
        """Metrics of this replica."""
        yield one("knodel_leader", "gauge", "1 while this replica leads.", float(self.leads))
        yield one("knodel_compositions_total", "counter", "Starts, lost Leases, new settings.", self._made)
        if self._component is not None:
            yield from controller_families(self._component.controllers)
            yield from informer_families(self._component.informers)
            yield from self._component.families()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`. Raises what a part raises that ended on its own."""
        work, campaign = asyncio.create_task(self._work()), asyncio.create_task(self._campaign())
        try:
            await _until(stop.wait(), (work, campaign))
        finally:
            await _end(work)  # while the Lease is still renewed
            await _end(campaign)
            await self._give_back()

    async def _give_back(self) -> None:
        if not self._lease.valid:
            return
        try:
            async with asyncio.timeout(RELEASE_WITHIN):
                await self._lease.release()
        except TimeoutError:
            log.warning("the Lease was not given back within %g s: it runs out", RELEASE_WITHIN)

    async def _campaign(self) -> None:
        """Take the Lease, hold it, and try again when it is lost."""
        while True:
            await self._synced.wait()
            fencing = await self._lease.acquire()
            log.info("this replica leads (term %d)", fencing)
            self._following.clear()
            self._leading.set()
            try:
                await self._lease.hold()
            except LeaseLost as lost:
                log.warning("this replica stops acting: %s", lost)
            finally:
                self._leading.clear()
                self._following.set()

    async def _work(self) -> None:
        while True:
            self._made += 1
            component = self._component = self._make(FencedCluster(self._cluster, self._lease))
            watching = asyncio.create_task(component.informers.run())
            acting = asyncio.create_task(self._act(component))
            try:
                await _until(self._overtaken(), (acting, watching))
            finally:
                self._synced.clear()
                await _end(acting, watching)

    async def _act(self, component: Component) -> None:
        await component.informers.synced()
        self._synced.set()
        await self._leading.wait()
        await component.informers.caught_up()  # with the last writes of the former leader
        await component.run()

    async def _overtaken(self) -> None:
        """Return when what runs must be made anew: other settings, or the lead is lost."""
        tasks = {asyncio.ensure_future(self._changed()), asyncio.create_task(self._lost())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            await _end(*tasks)

    async def _lost(self) -> None:
        await self._leading.wait()
        await self._following.wait()


async def _until(wanted: Coroutine[Any, Any, object], parts: Iterable[asyncio.Task[None]]) -> None:
    """Wait for `wanted`; the error of a part that ends first is raised."""
    waiting = asyncio.create_task(wanted)
    try:
        await asyncio.wait({waiting, *parts}, return_when=asyncio.FIRST_COMPLETED)
        for part in parts:
            if part.done():
                part.result()
                raise KnodelError("a part of the process ended on its own: see the log")
        await waiting
    finally:
        await _end(waiting)


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel all, and wait until they are over, even when this is cancelled meanwhile.

    Their own errors were, or will be, raised where they are awaited.
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
