"""Complete claims by adoption, and undo abandoned ones: level-triggered, from the labels and annotations of the
Pods.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Final

from autoscaler.config import WarmStart
from autoscaler.warmpool.claims.claim import ClaimSteps
from autoscaler.warmpool.claims.classes import DEFAULT_FORMAT, format_of, pool_class
from autoscaler.warmpool.claims.marks import LABEL_POOL, LABEL_POOL_CLASS
from autoscaler.warmpool.claims.pods import claim_record_of, is_adoptable, is_claimed
from autoscaler.warmpool.members import Members
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError
from clusters.base.objects import (
    DEPLOYMENT,
    LABEL_REVISION,
    LABEL_TEMPLATE_HASH,
    REPLICA_SET,
    Key,
    Object,
    controller_of,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from clusters.net.endpoints import is_ready
from clusters.runtime.informer import Informers

log = logging.getLogger(__name__)

SCALE_RECHECK: Final = 0.05
"""Seconds between checks while the ReplicaSet is about to follow its Deployment. This takes 10-70 ms on Kubernetes, and
meanwhile it starts a Pod of its own, which the adoption avoids.
"""
RETRY: Final = 1.0
"""Seconds until a failed call to the cluster is repeated."""
LEFT_ALONE: Final = 2.0
"""Multiple of `WarmStart.reap_after` after which a labelled member is deleted if no `finish` handles it."""


def room_in(replica_set: Object, pods: Iterable[Object]) -> int:
    """Return how many more members the ReplicaSet can adopt without deleting one that serves. Pure.

    `pods` are the revision's active ones. Of the ReplicaSet's own, those that are ready or were claimed count.
    """
    filled = sum(1 for pod in pods if _is_of(pod, replica_set) and (is_ready(pod) or is_claimed(pod)))
    return int(replica_set["spec"].get("replicas", 1)) - filled


class Adoption:
    """Completes or undoes claims."""

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        members: Members,
        steps: ClaimSteps,
        clock: Clock,
        settings: WarmStart,
    ) -> None:
        self._cluster = cluster
        self._deployments = informers[DEPLOYMENT]
        self._members = members
        self._steps = steps
        self._clock = clock
        self._settings = settings
        self._since: dict[str, float] = {}  # uid of a waiting member → when this process first saw it

    async def finish(self, key: Key, deployment: Object) -> float | None:
        """Run one pass for one revision; return the seconds until the next one, or None."""
        reserved = self._idle(self._members.reserved_for(key))
        waits = [await self._undo_if_late(pod, f"its claim for {key} was abandoned") for pod in reserved]
        pods = self._members.of_revision(key, deployment)
        labelled = self._idle(pod for pod in pods if is_claimed(pod) and LABEL_POOL in labels_of(pod))
        if labelled:
            waits += await self._adopt_or_undo(key, deployment, labelled, pods)
        return min((wait for wait in waits if wait is not None), default=None)

    async def reap(self) -> float | None:
        """Run one pass over all claimed members; return the seconds until the next one (infinite: none is needed), or
        None.
        """
        claimed = self._idle(self._members.claimed())
        present = {uid_of(pod) for pod in claimed}
        self._since = {uid: since for uid, since in self._since.items() if uid in present}
        living = {uid_of(deployment) for deployment in self._deployments if not is_deleting(deployment)}
        waits = [
            await self._undo_if_late(pod, "its claim was abandoned", self._time_limit(pod, living)) for pod in claimed
        ]
        return min((wait for wait in waits if wait is not None), default=None)

    def _time_limit(self, pod: Object, living: set[str]) -> float:
        """Return the seconds for which a claimed member may remain unadopted; infinite if its ReplicaSet will
        adopt it.
        """
        mark = claim_record_of(pod)
        if mark is not None and any(_is_of(pod, one) for one in self._members.replica_sets(mark.deployment)):
            return math.inf
        served = mark is not None and mark.deployment in living and LABEL_REVISION in labels_of(pod)
        return self._settings.reap_after * (LEFT_ALONE if served else 1.0)

    def _idle(self, pods: Iterable[Object]) -> list[Object]:
        """Return the Pods that are not in a running claim of this process."""
        return [pod for pod in pods if not self._members.is_acquired(pod)]

    async def _adopt_or_undo(
        self, key: Key, deployment: Object, labelled: Sequence[Object], pods: Sequence[Object]
    ) -> list[float | None]:
        """Adopt as many as there is room for; the others wait or are deleted."""
        template = None if is_deleting(deployment) else deployment["spec"]["template"]
        fitting = []
        for pod in labelled:  # a template without a format accepts members of any: the claim knew the format
            own = format_of(pod["spec"]) or DEFAULT_FORMAT
            if template is not None and labels_of(pod).get(LABEL_POOL_CLASS) == pool_class(template, own):
                fitting.append(pod)
            else:
                await self._steps.delete(pod, f"it no longer matches the template of {key}")
        fitting.sort(key=lambda pod: (not is_ready(pod), pod["metadata"]["creationTimestamp"]))
        adopted = await self._adopt(key, deployment, fitting, pods)
        waiting = [pod for pod in fitting if uid_of(pod) not in adopted]
        replica_set = self._members.replica_set(deployment)
        coming = _replicas(deployment) - (_replicas(replica_set) if replica_set is not None else 0)
        for pod in waiting[: max(0, coming)]:  # the ReplicaSet has not been scaled yet
            self._since[uid_of(pod)] = self._clock.monotonic()
        waits = [await self._undo_if_late(pod, f"{key} has no room for it") for pod in waiting]
        return [*waits, SCALE_RECHECK if coming > 0 else RETRY] if waiting else waits

    async def _adopt(
        self, key: Key, deployment: Object, labelled: Sequence[Object], pods: Sequence[Object]
    ) -> set[str]:
        """Adopt members into the ReplicaSet, which is read from the cluster now, as far as it has room; return their
        uids.
        """
        known = self._members.replica_set(deployment)
        if known is None or room_in(known, pods) <= 0:
            return set()
        try:
            replica_set = await self._cluster.get(REPLICA_SET, name_of(known), namespace_of(known))
        except ClusterError as error:
            log.info("%s: cannot read its ReplicaSet: %s", key, error)
            return set()
        chosen = labelled[: max(0, room_in(replica_set, pods))]
        adopted = set()
        for pod in chosen:
            try:
                await self._steps.adopt(key, pod, replica_set)
            except ClusterError as error:
                log.info("%s: cannot adopt warm Pod %s: %s", key, key_of(pod), error)
            else:
                self._since.pop(uid_of(pod), None)
                adopted.add(uid_of(pod))
        return adopted

    async def _undo_if_late(self, pod: Object, why: str, limit: float | None = None) -> float | None:
        """Delete a member that has waited too long; return the seconds until then, or until a retry.

        The wait is measured by this process, not by the claim's age: after an outage of the autoscaler, a serving
        member must not be deleted.
        """
        now = self._clock.monotonic()
        waited = now - self._since.setdefault(uid_of(pod), now)
        left = (self._settings.reap_after if limit is None else limit) - waited
        if left > 0:
            return left
        if not await self._steps.delete(pod, why, as_seen=True):
            return RETRY
        self._since.pop(uid_of(pod), None)
        return None


def _replicas(obj: Object) -> int:
    return int(obj["spec"].get("replicas", 1))


def _is_of(pod: Object, replica_set: Object) -> bool:
    """Return whether the ReplicaSet owns the Pod, or will adopt it at its next sync."""
    controller = controller_of(pod)
    if controller is not None:
        return bool(controller["uid"] == uid_of(replica_set))
    return is_adoptable(pod) and labels_of(pod)[LABEL_TEMPLATE_HASH] == labels_of(replica_set).get(LABEL_TEMPLATE_HASH)
