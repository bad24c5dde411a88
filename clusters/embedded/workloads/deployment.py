"""The Deployment controller: create a ReplicaSet for the template, scale it, and write the Deployment's status."""

from __future__ import annotations

import contextlib

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import AlreadyExists, NotFound
from clusters.base.objects import (
    DEPLOYMENT,
    REPLICA_SET,
    Key,
    Object,
    generation_of,
    is_controlled_by,
    is_deleting,
    name_of,
    namespace_of,
    uid_of,
)
from clusters.embedded.workloads.deployment_status import ObservedDeployment, calculate_status, seconds_to_deadline
from clusters.embedded.workloads.status import status_of, write_status
from clusters.embedded.workloads.template import make_replica_set, replicas_of
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers

MANAGER = "deployment-controller"


class DeploymentController:
    """Reconcile Deployments."""

    def __init__(self, cluster: Cluster, informers: Informers, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._deployments = informers[DEPLOYMENT]
        self._replica_sets = informers[REPLICA_SET]
        self._rendered: dict[Key, tuple[str, int, Object]] = {}  # (uid, generation of the Deployment, its ReplicaSet)
        self.controller = Controller("deployments", self.reconcile)
        self.controller.watches(self._deployments)
        self.controller.watches_owned(self._replica_sets, DEPLOYMENT)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one Deployment. Return the seconds until its progress deadline. Raises ClusterError."""
        deployment = self._deployments.get(key.name, key.namespace)
        if deployment is None or is_deleting(deployment):
            self._rendered.pop(key, None)
            return None
        desired = self._render(key, deployment)
        owned = [one for one in self._replica_sets.indexed("owner", uid_of(deployment)) if not is_deleting(one)]
        old = [one for one in owned if name_of(one) != name_of(desired)]
        known = next((one for one in owned if name_of(one) == name_of(desired)), None)
        new = await self._ensure(deployment, desired) if known is None else known
        new = await self._scale(new, replicas_of(deployment))
        await self._scale_down_old(old, new)
        if status_of(new).get("observedGeneration") != generation_of(new):
            return None  # the ReplicaSet's status change triggers the next pass, so one write is enough
        now = self._clock.now()
        status = calculate_status(ObservedDeployment(deployment, new, old), now)
        await write_status(self._cluster, DEPLOYMENT, deployment, status, MANAGER)
        return seconds_to_deadline(status, deployment, now)

    def _render(self, key: Key, deployment: Object) -> Object:
        """Return the ReplicaSet of the current template. It is cached because most passes only need its name."""
        uid, generation, rendered = self._rendered.get(key, ("", 0, {}))
        if (uid, generation) != (uid_of(deployment), generation_of(deployment)):
            rendered = make_replica_set(deployment)
            self._rendered[key] = (uid_of(deployment), generation_of(deployment), rendered)
        return rendered

    async def _ensure(self, deployment: Object, desired: Object) -> Object:
        """Create the ReplicaSet, or get it if the informer does not show it yet.

        Raises AlreadyExists when it belongs to another Deployment.
        """
        try:
            return await self._cluster.create(REPLICA_SET, desired, manager=MANAGER)
        except AlreadyExists:
            found = await self._cluster.get(REPLICA_SET, name_of(desired), namespace_of(desired))
            if not is_controlled_by(found, deployment):
                raise
            return found

    async def _scale(self, replica_set: Object, replicas: int) -> Object:
        if replicas_of(replica_set) == replicas:
            return replica_set
        patch = {"spec": {"replicas": replicas}}
        return await self._cluster.patch(
            REPLICA_SET, name_of(replica_set), patch, namespace_of(replica_set), manager=MANAGER
        )

    async def _scale_down_old(self, old: list[Object], new: Object) -> None:
        """Scale the ReplicaSets of former templates to 0 once the new one is available, and delete empty ones."""
        available = int(status_of(new).get("availableReplicas") or 0)
        for replica_set in old:
            if available >= replicas_of(new):
                await self._scale(replica_set, 0)
            if replicas_of(replica_set) == 0 and not status_of(replica_set).get("replicas"):
                name, namespace, uid = name_of(replica_set), namespace_of(replica_set), uid_of(replica_set)
                with contextlib.suppress(NotFound):
                    await self._cluster.delete(REPLICA_SET, name, namespace, uid=uid)
