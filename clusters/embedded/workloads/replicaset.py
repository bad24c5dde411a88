"""The ReplicaSet controller: keep the desired number of Pods.

A pass claims Pods, creates missing ones or deletes surplus ones, and writes the status. Creations and deletions that
the informer does not show yet are counted (`OwnWrites`), so a stale cache does not lead to duplicates. Pods that are
about to be adopted are awaited (`PendingAdoptions`), so a warm start creates no unnecessary Pod.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError, NotFound
from clusters.base.objects import (
    POD,
    REPLICA_SET,
    Key,
    Object,
    generation_of,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from clusters.embedded.workloads.controller_ref_manager import (
    BY_HASH,
    MANAGER,
    PodControllerRefManager,
    by_template_hash,
)
from clusters.embedded.workloads.pending_adoptions import ADOPTION_TIMEOUT, PendingAdoptions
from clusters.embedded.workloads.ranking import FINISHED, is_active, is_ready, phase_of, pods_to_delete
from clusters.embedded.workloads.status import condition, conditions_by_type, counts, write_status
from clusters.embedded.workloads.template import make_pod, pod_name, replicas_of
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers

BURST = 500  # Pods that one pass creates or deletes at most, as in Kubernetes
FIRST_BATCH = 1  # Pods in the first batch of creations; further batches double (`slowStartBatch` of Kubernetes)
REPLICA_FAILURE = "ReplicaFailure"


@dataclass(slots=True)
class _Pass:
    """The state of one pass.

    `unseen` counts created Pods that the informer does not show yet, `pending` those about to be adopted.
    """

    replica_set: Object
    unseen: int
    pending: int
    pods: list[Object] = field(default_factory=list)


class ReplicaSetController:
    """Reconcile ReplicaSets."""

    def __init__(self, cluster: Cluster, informers: Informers, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._replica_sets = informers[REPLICA_SET]
        self._pods = informers[POD]
        self._replica_sets.add_index(BY_HASH, by_template_hash)
        self._pods.add_index(BY_HASH, by_template_hash)
        self._refs = PodControllerRefManager(cluster, self._pods)
        self._pending = PendingAdoptions(self._pods, clock)
        self._names = random.Random()  # noqa: S311 - names, not secrets
        self.controller = Controller("replicasets", self.reconcile)
        self.controller.watches(self._replica_sets)
        self.controller.watches_owned(self._pods, REPLICA_SET)
        self.controller.watches_mapped(self._pods, self._possible_owners)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one ReplicaSet. Return the seconds until the next pass. Raises ClusterError."""
        replica_set = self._replica_sets.get(key.name, key.namespace)
        if replica_set is None or is_deleting(replica_set):
            return None
        owned = sum(map(is_active, self._pods.indexed("owner", uid_of(replica_set))))
        pending = self._pending.count(replica_set) if replicas_of(replica_set) > owned else 0
        current = _Pass(replica_set, len(self._pods.own_writes.created(uid_of(replica_set))), pending)
        current.pods = await self._refs.claim_pods(replica_set)
        failure: ClusterError | None = None
        try:
            await self._delete_ended(replica_set)
            missing = replicas_of(replica_set) - len(current.pods) - current.unseen
            if missing > 0:
                await self._create(current, min(missing - current.pending, BURST))
            elif missing < 0 and not current.unseen:  # the ranking needs all Pods
                await self._delete(pods_to_delete(current.pods, min(-missing, BURST)), current)
        except ClusterError as error:
            failure = error
        await self._write_status(current, failure)
        if failure is not None:
            raise failure
        return ADOPTION_TIMEOUT if current.pending else None

    def _possible_owners(self, pod: Object) -> list[Key]:
        """Return the ReplicaSets with the Pod's hash, which may adopt it or have released it."""
        found = (self._replica_sets.indexed(BY_HASH, value) for value in by_template_hash(pod))
        return [key_of(replica_set) for some in found for replica_set in some]

    async def _create(self, current: _Pass, number: int) -> None:
        """Create Pods in batches that double, so that few creations fail when a quota is exceeded."""
        batch = FIRST_BATCH
        while number > 0:
            size = min(batch, number)
            await _all_or_first_error([self._create_one(current) for _ in range(size)])
            number -= size
            batch *= 2

    async def _create_one(self, current: _Pass) -> None:
        pod = make_pod(current.replica_set, pod_name(current.replica_set, self._names))
        self._pods.own_writes.record(await self._cluster.create(POD, pod, manager=MANAGER))
        current.unseen += 1

    async def _delete(self, pods: Sequence[Object], current: _Pass | None = None) -> None:
        await _all_or_first_error([self._delete_one(pod, current) for pod in pods])

    async def _delete_one(self, pod: Object, current: _Pass | None) -> None:
        with suppress(NotFound):  # deleted concurrently
            await self._cluster.delete(POD, name_of(pod), namespace_of(pod), uid=uid_of(pod))
        self._pods.own_writes.record_deletion(pod)
        if current is not None:
            current.pods.remove(pod)

    async def _delete_ended(self, replica_set: Object) -> None:
        """Delete Pods that have ended, which the Pod garbage collector does in Kubernetes."""
        owned = self._pods.indexed("owner", uid_of(replica_set))
        ended = [pod for pod in owned if phase_of(pod) in FINISHED and not self._pods.own_writes.is_deleting(pod)]
        await self._delete(ended)

    async def _write_status(self, current: _Pass, failure: ClusterError | None) -> None:
        """Write the status of the Pods at the start of the pass with its own changes, not with those made meanwhile."""
        replica_set, pods, unseen = current.replica_set, current.pods, current.unseen
        template_labels = (replica_set["spec"]["template"].get("metadata") or {}).get("labels") or {}
        ready = sum(is_ready(pod) for pod in pods)
        labelled = sum(template_labels.items() <= dict(labels_of(pod)).items() for pod in pods)
        status = {
            "replicas": len(pods) + unseen,
            "observedGeneration": generation_of(replica_set),
            **counts(fullyLabeledReplicas=labelled + unseen, readyReplicas=ready, availableReplicas=ready),
            **self._conditions(replica_set, failure),
        }
        await write_status(self._cluster, REPLICA_SET, replica_set, status, MANAGER)

    def _conditions(self, replica_set: Object, failure: ClusterError | None) -> Object:
        if failure is None:
            return {}
        reason = "FailedCreate" if replicas_of(replica_set) > 0 else "FailedDelete"
        former = conditions_by_type(replica_set).get(REPLICA_FAILURE)
        return {"conditions": [condition(former, REPLICA_FAILURE, "True", reason, str(failure), self._clock.now())]}


async def _all_or_first_error(calls: Sequence[Coroutine[None, None, None]]) -> None:
    """Run the calls concurrently until all have ended, then raise the first error."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
