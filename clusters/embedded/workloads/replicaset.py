"""The ReplicaSet controller: as many Pods as wished, no more, no fewer.

One pass: claim Pods, create or delete what is missing or too much, say so in the status. What this process did and has
not seen yet counts as done (`Expectations`), so a stale view never doubles a Pod. Pods that are about to be adopted are
waited for (`Awaited`), so a warm start makes no Pod that is not needed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
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
from clusters.embedded.workloads.awaited import PATIENCE, Awaited
from clusters.embedded.workloads.claims import BY_HASH, MANAGER, Claims, by_template_hash
from clusters.embedded.workloads.ranking import FINISHED, is_active, is_ready, phase_of, pods_to_delete
from clusters.embedded.workloads.status import condition, conditions_by_type, counts, write_status
from clusters.embedded.workloads.template import make_pod, pod_name, replicas_of
from clusters.runtime.controller import Controller
from clusters.runtime.expectations import Expectations
from clusters.runtime.informer import Informers

BURST = 500  # Pods that one pass creates or deletes at most, as in Kubernetes
FIRST_BATCH = 1  # Pods created before it is known whether any can be; the batch doubles (`slowStartBatch`)
REPLICA_FAILURE = "ReplicaFailure"


@dataclass(slots=True)
class _Pass:
    """What one pass knows: its ReplicaSet, the Pods that live, how many more were made that it cannot see.

    `awaited`: how many more were about to be adopted when it began.
    """

    replica_set: Object
    unseen: int
    awaited: int
    pods: list[Object] = field(default_factory=list)


class ReplicaSets:
    """The controller."""

    def __init__(self, cluster: Cluster, informers: Informers, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._replica_sets = informers[REPLICA_SET]
        self._pods = informers[POD]
        self._replica_sets.add_index(BY_HASH, by_template_hash)
        self._pods.add_index(BY_HASH, by_template_hash)
        self._expectations = Expectations(self._pods, clock)
        self._claims = Claims(cluster, self._pods, self._expectations)
        self._awaited = Awaited(self._pods, clock)
        self._names = random.Random()  # noqa: S311 - names, not secrets
        self.controller = Controller("replicasets", self.reconcile)
        self.controller.watches(self._replica_sets)
        self.controller.watches_owned(self._pods, REPLICA_SET)
        self.controller.watches_mapped(self._pods, self._would_be_owners)

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns the seconds until the next look. Raises what the cluster raises."""
        replica_set = self._replica_sets.get(key.name, key.namespace)
        if replica_set is None or is_deleting(replica_set):
            return None
        owned = sum(map(is_active, self._pods.indexed("owner", uid_of(replica_set))))
        awaited = self._awaited.count(replica_set) if replicas_of(replica_set) > owned else 0
        done = _Pass(replica_set, self._expectations.creating(uid_of(replica_set)), awaited)
        done.pods = await self._claims.claim(replica_set)
        failure: ClusterError | None = None
        try:
            await self._sweep(replica_set)
            await self._manage(done)
        except ClusterError as error:
            failure = error
        await self._tell(done, failure)
        if failure is not None:
            raise failure
        return PATIENCE if done.awaited else None

    def _would_be_owners(self, pod: Object) -> list[Key]:
        """ReplicaSets that a Pod with this hash may belong to: it may be adopted, or have been released."""
        found = (self._replica_sets.indexed(BY_HASH, value) for value in by_template_hash(pod))
        return [key_of(replica_set) for some in found for replica_set in some]

    async def _manage(self, done: _Pass) -> None:
        missing = replicas_of(done.replica_set) - len(done.pods) - done.unseen
        if missing > 0:
            await self._create(done, min(missing - done.awaited, BURST))
        elif missing < 0 and not done.unseen:  # else wait: which Pod is worth least is seen when all are
            await self._delete(pods_to_delete(done.pods, min(-missing, BURST)), done)

    async def _create(self, done: _Pass, number: int) -> None:
        """In batches that double, so that a refusal (a quota) costs few tries."""
        batch = FIRST_BATCH
        while number > 0:
            size = min(batch, number)
            await _all_or_first_error([self._create_one(done) for _ in range(size)])
            number -= size
            batch *= 2

    async def _create_one(self, done: _Pass) -> None:
        replica_set = done.replica_set
        key = Key(namespace_of(replica_set), pod_name(replica_set, self._names))
        self._expectations.expect_creation(uid_of(replica_set), key)
        try:
            await self._cluster.create(POD, make_pod(replica_set, key.name), manager=MANAGER)
        except BaseException:
            self._expectations.creation_failed(uid_of(replica_set), key)
            raise
        done.unseen += 1

    async def _delete(self, pods: Sequence[Object], done: _Pass | None = None) -> None:
        await _all_or_first_error([self._delete_one(pod, done) for pod in pods])

    async def _delete_one(self, pod: Object, done: _Pass | None) -> None:
        self._expectations.expect_deletion(pod)
        try:
            await self._cluster.delete(POD, name_of(pod), namespace_of(pod), uid=uid_of(pod))
        except NotFound:
            pass  # somebody else was faster
        except BaseException:
            self._expectations.deletion_failed(pod)
            raise
        if done is not None:
            done.pods.remove(pod)

    async def _sweep(self, replica_set: Object) -> None:
        """Delete Pods that ended; Kubernetes leaves that to its Pod garbage collector."""
        owned = self._pods.indexed("owner", uid_of(replica_set))
        ended = [pod for pod in owned if phase_of(pod) in FINISHED and not self._expectations.is_deleting(pod)]
        await self._delete(ended)

    async def _tell(self, done: _Pass, failure: ClusterError | None) -> None:
        """The status of what was seen at the start of the pass and was done in it, not of what came in between."""
        replica_set, living, unseen = done.replica_set, done.pods, done.unseen
        template_labels = (replica_set["spec"]["template"].get("metadata") or {}).get("labels") or {}
        ready = sum(is_ready(pod) for pod in living)
        labelled = sum(template_labels.items() <= dict(labels_of(pod)).items() for pod in living)
        status = {
            "replicas": len(living) + unseen,
            "observedGeneration": generation_of(replica_set),
            **counts(fullyLabeledReplicas=labelled + unseen, readyReplicas=ready, availableReplicas=ready),
            **self._conditions(replica_set, failure),
        }
        await write_status(self._cluster, REPLICA_SET, replica_set, status, MANAGER)

    def _conditions(self, replica_set: Object, failure: ClusterError | None) -> Object:
        if failure is None:
            return {}
        too_few = replicas_of(replica_set) > 0
        reason = "FailedCreate" if too_few else "FailedDelete"
        former = conditions_by_type(replica_set).get(REPLICA_FAILURE)
        return {"conditions": [condition(former, REPLICA_FAILURE, "True", reason, str(failure), self._clock.now())]}


async def _all_or_first_error(calls: Sequence[Coroutine[None, None, None]]) -> None:
    """Run them together, all to their end; then raise the first error."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
