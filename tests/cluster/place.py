"""A namespace of the test's own with a controller of its own, which is listened to, and an autoscaler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoscaler.main import PROGRAM as AUTOSCALER
from clusters.base.api import Cluster
from clusters.base.objects import MODEL, POD, Kind, Object, condition_of, is_deleting, uid_of
from serving.platform.main import PROGRAM as CONTROLLER
from serving.types.annotations import LABEL_MODEL
from serving.types.settings.settings import Settings
from tests.cluster.acting import Recording, acting, settings_of
from tests.scenarios.world import World, model
from tests.support.artifacts import ArtifactServer
from tests.support.kubernetes import KubeTarget

MANAGER = "tests"
SMALL = {"resources": {"cpu": "30m", "memory": "256Mi"}}
PATIENCE = 4.0  # times what a step may take on one machine
QUIET = 8.0  # s without a write that count as "no more writes": longer than any back-off of a few failures


class Place:
    """A namespace of the test's own with a controller of its own."""

    def __init__(self, cluster: Cluster, world: World, namespace: str, writes: Recording) -> None:
        self.cluster = cluster
        self.world = world
        self.namespace = namespace
        self.writes = writes

    async def deploy(self, name: str, artifact: str = "double", **spec: Any) -> Object:
        """A Model that is Ready."""
        uri = self.world.artifacts(artifact)
        return await self.world.deploy(name, namespace=self.namespace, **{"storageUri": uri, **spec})

    async def create(self, name: str, **spec: Any) -> Object:
        """A Model that nobody waits for."""
        wanted = model(name, self.namespace, **{"storageUri": self.world.artifacts("double"), **SMALL, **spec})
        return await self.cluster.create(MODEL, wanted, manager=MANAGER)

    async def get(self, kind: Kind, name: str) -> Object:
        """One object."""
        return await self.cluster.get(kind, name, self.namespace)

    async def of_model(self, kind: Kind, name: str) -> list[Object]:
        """All objects of the kind with the Model's label."""
        return list((await self.cluster.list(kind, self.namespace, f"{LABEL_MODEL}={name}")).items)

    async def pods(self, name: str) -> set[str]:
        """The uids of the Model's Pods that are not ending."""
        return {uid_of(pod) for pod in await self.of_model(POD, name) if not is_deleting(pod)}

    async def condition(self, name: str, status: str, reason: str) -> str:
        """Wait for ObjectsApplied; its message."""
        found: Object = {}

        def holds(model: Object) -> bool:
            found.update(condition_of(model, "ObjectsApplied") or {})
            return (found.get("status"), found.get("reason", "")) == (status, reason)

        await self.world.until(name, holds, self.namespace)
        return str(found.get("message", ""))

    async def quiet(self) -> None:
        """Return once the controller has written nothing for a while."""
        seen = -1
        while seen != len(self.writes.writes):
            seen = len(self.writes.writes)
            await asyncio.sleep(QUIET)


@asynccontextmanager
async def place(
    cluster: Cluster,
    target: KubeTarget,
    namespace: str,
    artifacts: ArtifactServer,
    folder: Path,
    *,
    image: str = "",
    settings: Settings | None = None,
) -> AsyncIterator[Place]:
    """The namespace with a controller and an autoscaler of its own; both write there alone.

    `settings` are those of the installed Knodel if None.
    """
    settings = settings or await settings_of(cluster)
    server = replace(settings.server, image=image) if image else settings.server
    settings = replace(settings, server=server)
    gateway = f"http://{settings.gateway.address}:{settings.gateway.port}"
    world = World(
        cluster, gateway, settings.gateway.domain, artifacts.uri, namespace=namespace, defaults=SMALL, patience=PATIENCE
    )
    async with (
        acting(AUTOSCALER, cluster, target, namespace, folder, settings),
        acting(CONTROLLER, cluster, target, namespace, folder, settings) as writes,
    ):
        try:
            yield Place(cluster, world, namespace, writes)
        finally:
            await world.close()
