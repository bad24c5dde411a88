"""The Deployment controller: one ReplicaSet for its template, scaled as the Deployment is, and a status."""

from __future__ import annotations

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
from clusters.embedded.workloads.deployment_status import View, next_status, seconds_to_deadline
from clusters.embedded.workloads.status import status_of, write_status
from clusters.embedded.workloads.template import make_replica_set, replicas_of
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers

MANAGER = "deployment-controller"


class Deployments:
    """The controller."""

    def __init__(self, cluster: Cluster, informers: Informers, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._deployments = informers[DEPLOYMENT]
        self._replica_sets = informers[REPLICA_SET]
        self._made: dict[Key, tuple[str, int, Object]] = {}  # (uid, generation of the Deployment, its ReplicaSet)
        self.controller = Controller("deployments", self.reconcile)
        self.controller.watches(self._deployments)
        self.controller.watches_owned(self._replica_sets, DEPLOYMENT)

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns when the progress deadline is due. Raises what the cluster raises."""
        deployment = self._deployments.get(key.name, key.namespace)
        if deployment is None or is_deleting(deployment):
            self._made.pop(key, None)
            return None
        wanted = self._wanted(key, deployment)
        owned = [one for one in self._replica_sets.indexed("owner", uid_of(deployment)) if not is_deleting(one)]
        others = [one for one in owned if name_of(one) != name_of(wanted)]
        known = next((one for one in owned if name_of(one) == name_of(wanted)), None)
        current = await self._ensure(deployment, wanted) if known is None else known
        current = await self._scale(current, replicas_of(deployment))
        await self._retire(others, current)
        if status_of(current).get("observedGeneration") != generation_of(current):
            return None  # its status comes in a moment and wakes us: one write instead of two
        now = self._clock.now()
        status = next_status(View(deployment, current, others), now)
        await write_status(self._cluster, DEPLOYMENT, deployment, status, MANAGER)
        return seconds_to_deadline(status, deployment, now)

    def _wanted(self, key: Key, deployment: Object) -> Object:
        """The ReplicaSet of its template, made once for each generation: a pass needs little more than its name."""
        uid, generation, made = self._made.get(key, ("", 0, {}))
        if (uid, generation) != (uid_of(deployment), generation_of(deployment)):
            made = make_replica_set(deployment)
            self._made[key] = (uid_of(deployment), generation_of(deployment), made)
        return made

    async def _ensure(self, deployment: Object, wanted: Object) -> Object:
        """Create it, or find it where the informer does not show it yet. Raises AlreadyExists when it is another's."""
        try:
            return await self._cluster.create(REPLICA_SET, wanted, manager=MANAGER)
        except AlreadyExists:
            found = await self._cluster.get(REPLICA_SET, name_of(wanted), namespace_of(wanted))
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

    async def _retire(self, others: list[Object], current: Object) -> None:
        """Former templates: down to zero once the present one is available, then away."""
        available = int(status_of(current).get("availableReplicas") or 0)
        for replica_set in others:
            if available >= replicas_of(current):
                await self._scale(replica_set, 0)
            if replicas_of(replica_set) == 0 and not status_of(replica_set).get("replicas"):
                await self._remove(replica_set)

    async def _remove(self, replica_set: Object) -> None:
        try:
            await self._cluster.delete(
                REPLICA_SET, name_of(replica_set), namespace_of(replica_set), uid=uid_of(replica_set)
            )
        except NotFound:
            return
