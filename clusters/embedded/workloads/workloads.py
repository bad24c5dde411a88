"""The two workload controllers together, as the platform runs them."""

from __future__ import annotations

import asyncio

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.objects import DEPLOYMENT, POD, REPLICA_SET
from clusters.embedded.workloads.deployment import Deployments
from clusters.embedded.workloads.replicaset import ReplicaSets
from clusters.runtime.informer import Informers


class Workloads:
    """Deployments and ReplicaSets; make it before `informers` run, for it asks for their kinds."""

    def __init__(self, cluster: Cluster, informers: Informers, clock: Clock) -> None:
        self._informers = [informers[kind] for kind in (DEPLOYMENT, REPLICA_SET, POD)]
        self.deployments = Deployments(cluster, informers, clock)
        self.replica_sets = ReplicaSets(cluster, informers, clock)

    async def run(self) -> None:
        """Work until cancelled; begins when all kinds were listed, so that nothing that exists is made again."""
        for informer in self._informers:
            await informer.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.deployments.controller.run(), name="deployments")
            group.create_task(self.replica_sets.controller.run(), name="replicasets")
