"""The workload controllers of the embedded cluster: Deployments create ReplicaSets, and ReplicaSets create Pods.

They follow kubernetes v1.35 `pkg/controller/{deployment,replicaset}` and `pkg/controller/controller_utils.go`. Adoption
and the order of deletion were compared with a real cluster. There are two restrictions: selectors are `matchLabels`,
and a changed template replaces the old ReplicaSet only after the new one is available.
"""

from __future__ import annotations

import asyncio

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.objects import DEPLOYMENT, POD, REPLICA_SET
from clusters.embedded.workloads.deployment import DeploymentController
from clusters.embedded.workloads.replicaset import ReplicaSetController
from clusters.runtime.informer import Informers

__all__ = ["Workloads"]


class Workloads:
    """Run the Deployment and ReplicaSet controllers. Create it before `informers` run, because it adds their kinds."""

    def __init__(self, cluster: Cluster, informers: Informers, clock: Clock) -> None:
        self._informers = [informers[kind] for kind in (DEPLOYMENT, REPLICA_SET, POD)]
        self.deployments = DeploymentController(cluster, informers, clock)
        self.replica_sets = ReplicaSetController(cluster, informers, clock)

    async def run(self) -> None:
        """Run until cancelled. Work begins when all informers are synced, so that existing objects are known."""
        for informer in self._informers:
            await informer.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.deployments.controller.run(), name="deployments")
            group.create_task(self.replica_sets.controller.run(), name="replicasets")
