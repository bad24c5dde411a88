"""Activators of a test: Pods on a cluster whose metrics pages are scripted servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping

from autoscaler.config import Activators
from autoscaler.metrics.activators import NAMESPACE, ActivatorMonitor, activator_informers
from clusters.base.api import Cluster
from clusters.base.clock import Clock, SystemClock
from clusters.base.objects import ANNOTATION_PORTS, POD, Key
from tests.autoscaler.pages import Behaviour, Server, answer
from tests.autoscaler.test_activator_page import line, page
from tests.support.wait import eventually

TEST = "test"
BRISK = Activators(poll=0.01, idle_poll=0.05, timeout=0.15, max_bytes=100_000, unreachable_after=1.0)
REVISION = Key("shop", "search-00001")


def holding(queued: int = 0, active: int = 0, key: Key = REVISION) -> Behaviour:
    """Return an activator's page with these requests."""
    return answer(page(line("queued", key, str(queued)), line("active", key, str(active))))


class Pods:
    """The activator Pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def add(self, name: str, server: Server, *, ready: bool = True) -> None:
        """Add a Pod whose page that server provides."""
        annotations = {ANNOTATION_PORTS: json.dumps({"9090": server.port})}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {"app": "activator"}, "annotations": annotations}
        await self._cluster.create(POD, {"metadata": metadata, "spec": {"containers": []}}, manager=TEST)
        status = {"podIP": server.host, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
        await self._status(name, status)

    async def set_ready(self, name: str, ready: bool) -> None:
        """Set the result of its readiness probe."""
        await self._status(name, {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]})

    async def remove(self, name: str) -> None:
        """Delete the Pod."""
        await self._cluster.delete(POD, name, NAMESPACE, grace_period=0)

    async def _status(self, name: str, status: Mapping[str, object]) -> None:
        await self._cluster.patch(POD, name, {"status": status}, NAMESPACE, manager=TEST, subresource="status")


class Listener:
    """A running monitor, and its notifications."""

    def __init__(self, poller: ActivatorMonitor, pods: Pods) -> None:
        self.poller = poller
        self.pods = pods
        self.called: list[Key] = []
        self.hearing: list[bool] = []
        self.wanted = True
        self.revisions: list[Key] = [REVISION]

    async def holds(self, queued: int, active: int = 0, key: Key = REVISION) -> None:
        """Wait until the monitor reports these requests."""
        await eventually(lambda: (self.poller.load(key).queued, self.poller.load(key).active) == (queued, active))

    async def polls(self, more: int) -> None:
        """Wait for that many polls."""
        wanted = self.poller.counts.polls + more
        await eventually(lambda: self.poller.counts.polls >= wanted)


@contextlib.asynccontextmanager
async def listening(
    cluster: Cluster, servers: Iterable[Server] = (), settings: Activators = BRISK, clock: Clock | None = None
) -> AsyncIterator[Listener]:
    """Run a monitor over these activators (`activator-0`, …) until the end of the block."""
    clock = clock or SystemClock()
    pods = Pods(cluster)
    for number, server in enumerate(servers):
        await pods.add(f"activator-{number}", server)
    informers = activator_informers(cluster, clock)
    listener = Listener(ActivatorMonitor(informers[POD], clock, settings), pods)
    poller = listener.poller
    poller.follow(lambda: listener.revisions, lambda: listener.wanted)
    poller.subscribe(listener.called.append)
    poller.on_availability_change(lambda: listener.hearing.append(poller.signal_available))
    watching = asyncio.create_task(informers.run())
    await informers.synced()
    tasks = [watching, asyncio.create_task(poller.run())]
    try:
        yield listener
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
