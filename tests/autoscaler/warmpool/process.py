"""An autoscaler with claims only, which can crash."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from autoscaler.warmpool.claims.caller import LoadCaller
from autoscaler.warmpool.claims.claims import MemberClaims
from autoscaler.warmpool.claims.classes import DEFAULT_FORMAT
from autoscaler.warmpool.claims.marks import LABEL_POOL
from clusters.base.api import Cluster
from clusters.base.objects import (
    DEPLOYMENT,
    LABEL_REVISION,
    POD,
    Key,
)
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informers
from tests.autoscaler.warmpool.world import KEYS, SETTINGS, TEST, World
from tests.support.loops import at_work
from tests.support.wait import eventually


class Process:
    """An autoscaler with claims only, with its own informers."""

    def __init__(self, world: World, cluster: Cluster | None = None, caller: LoadCaller | None = None) -> None:
        self._world = world
        self._cluster = cluster or world.cluster
        self.informers = Informers(world.cluster, selectors={POD: LABEL_REVISION})
        self.pool_informers = Informers(world.cluster, selectors={POD: LABEL_POOL})
        self.claims = MemberClaims(
            self._cluster,
            self.informers,
            self.pool_informers,
            caller=caller or world.caller,
            keys=KEYS,
            clock=world.clock,
            settings=SETTINGS,
            formats=lambda key: world.formats.get(key, DEFAULT_FORMAT),
            log=world.steps.append,
        )

    async def caught_up(self) -> None:
        await self.informers.caught_up()
        await self.pool_informers.caught_up()

    async def start(self, key: Key, replicas: int, digest: str = "") -> int:
        """Run a reconciler pass that adds replicas: claim, then scale. All replicas load `digest`."""
        found = await self._world.deployment(key)
        served = await self.claims.begin(key, found, replicas, digest)
        if int(found["spec"]["replicas"]) != replicas:
            name = f"{key.name}-deployment"
            await self._cluster.scale(DEPLOYMENT, name, key.namespace, replicas, manager=TEST)
        return served

    async def finish(self, key: Key) -> float | None:
        """Run one pass over the cluster's present state."""
        await self.caught_up()
        return await self.claims.finish(key, await self._world.deployment(key))

    async def finished(self, key: Key) -> None:
        """Run passes until nothing is pending."""

        async def done() -> bool:
            return await self.finish(key) is None

        await eventually(done)

    async def settled(self, key: Key, replicas: int) -> None:
        """Run passes until the revision has exactly these replicas, all owned."""
        await self.finished(key)

        async def same() -> bool:
            return len(await self._world.of(key)) == replicas == len(await self._world.owned(key))

        await eventually(same)


@contextlib.asynccontextmanager
async def running(world: World, cluster: Cluster | None = None) -> AsyncIterator[Process]:
    """Run a process whose informers have synced."""
    process = Process(world, cluster)
    async with at_work(process.informers.run(), process.pool_informers.run()):
        await process.informers.synced()
        await process.pool_informers.synced()
        yield process


class Crash(Exception):
    """Raised where the process ends."""


class DyingCluster:
    """A cluster that ends the process after its `last` write, which still takes effect."""

    def __init__(self, cluster: EmbeddedCluster, last: int, death: type[BaseException] = Crash) -> None:
        self._cluster = cluster
        self._last = last
        self._death = death
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._cluster, name)
        return self._dying(call) if name in ("patch", "delete", "scale", "create", "apply") else call

    def _dying(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def write(*args: Any, **options: Any) -> Any:
            if self.writes >= self._last:
                raise self._death  # a dead process writes nothing more
            answer = await call(*args, **options)
            self.writes += 1
            if self.writes >= self._last:
                raise self._death
            return answer

        return write
