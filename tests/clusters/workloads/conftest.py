"""Run the workload controllers on an embedded cluster and count their writes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from clusters.base.api import Cluster
from clusters.base.clock import Clock, SystemClock
from clusters.base.errors import ClusterError
from clusters.base.objects import DEPLOYMENT, POD, REPLICA_SET, SECRET, Kind, Object, version_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.workloads import Workloads
from clusters.runtime.informer import Informers
from tests.support.wait import eventually

NAMESPACE = "default"
LABELS = {"serving.knative.dev/revisionUID": "uid-1"}


def deployment(name: str = "iris-00001-deployment", replicas: int = 1, **spec: Any) -> Object:
    """Return a Deployment as a Revision creates it."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": LABELS},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {**LABELS, "app": "iris"}, "annotations": {"a": "b"}},
                "spec": {"containers": [{"name": "user-container", "image": "server"}]},
            },
            **spec,
        },
    }


class CountingCluster:
    """A cluster that records effective writes and can reject the creation of Pods."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.writes: list[tuple[str, str, str]] = []
        self.refuse_pods: ClusterError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def create(self, kind: Kind, obj: Object, **options: Any) -> Object:
        if kind == POD and self.refuse_pods is not None:
            raise self.refuse_pods
        self.writes.append(("create", kind.kind, obj["metadata"]["name"]))
        return await self._cluster.create(kind, obj, **options)

    async def patch(self, kind: Kind, name: str, patch: Any, namespace: str = "", **options: Any) -> Object:
        before = await self._cluster.get(kind, name, namespace)
        after = await self._cluster.patch(kind, name, patch, namespace, **options)
        if version_of(before) != version_of(after):
            self.writes.append((f"patch {options.get('subresource', '')}".strip(), kind.kind, name))
        return after

    async def delete(self, kind: Kind, name: str, namespace: str = "", **options: Any) -> None:
        self.writes.append(("delete", kind.kind, name))
        await self._cluster.delete(kind, name, namespace, **options)


@dataclass
class World:
    """A cluster with running controllers."""

    cluster: EmbeddedCluster
    counting: CountingCluster
    clock: Clock
    workloads: Workloads = field(init=False)
    _task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start new controllers, as after a restart."""
        cluster: Cluster = self.counting
        informers = Informers(cluster)
        self.workloads = Workloads(cluster, informers, self.clock)

        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(informers.run())
                group.create_task(self.workloads.run())

        self._task = asyncio.create_task(run())

    async def frozen(self) -> Workloads:
        """Return controllers that do not run, with informers that show the current state and no later changes."""
        informers = Informers(self.counting)
        workloads = Workloads(self.counting, informers, self.clock)
        task = asyncio.create_task(informers.run())
        await informers.synced()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return workloads

    async def crash(self) -> None:
        """Cancel the controllers."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def settle(self) -> None:
        """Wait for the writes that were under way at the crash, by a further write, since writes are in order."""
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "settle-", "namespace": NAMESPACE}}
        await self.cluster.create(SECRET, secret, manager="test")

    async def quiet(self) -> None:
        """Wait until the queues of both controllers stay empty."""
        queues = (self.workloads.deployments.controller.queue, self.workloads.replica_sets.controller.queue)
        empty = 0

        def idle() -> bool:
            nonlocal empty
            empty = empty + 1 if not any(len(queue) for queue in queues) else 0
            return empty > 5

        await eventually(idle)

    async def pods(self) -> list[Object]:
        return list((await self.cluster.list(POD, NAMESPACE)).items)

    async def replica_sets(self) -> list[Object]:
        return list((await self.cluster.list(REPLICA_SET, NAMESPACE)).items)

    async def deployment(self, name: str = "iris-00001-deployment") -> Object:
        return await self.cluster.get(DEPLOYMENT, name, NAMESPACE)

    async def living(self, number: int) -> list[Object]:
        """Wait until exactly `number` Pods are not being deleted, and return them."""

        async def enough() -> list[Object] | bool:
            pods = [pod for pod in await self.pods() if "deletionTimestamp" not in pod["metadata"]]
            assert len(pods) == number
            return pods or True

        found = await eventually(enough)
        return found if isinstance(found, list) else []

    async def scale(self, replicas: int, name: str = "iris-00001-deployment") -> None:
        await self.cluster.scale(DEPLOYMENT, name, NAMESPACE, replicas, manager="test")

    async def status(self, check: Callable[[Object], object], name: str = "iris-00001-deployment") -> Object:
        """Wait until `check` accepts the Deployment's status, and return it."""

        async def holds() -> Object | None:
            status: Object = (await self.deployment(name)).get("status") or {}
            return status if check(status) else None

        found = await eventually(holds)
        assert found is not None
        return found


@pytest.fixture
async def world(cluster: EmbeddedCluster) -> AsyncIterator[World]:
    """Run the controllers on an empty cluster."""
    made = World(cluster, CountingCluster(cluster), SystemClock())
    await made.start()
    try:
        yield made
    finally:
        await made.crash()
