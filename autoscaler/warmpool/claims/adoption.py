"""The second half of a claim, and the undoing of halves: level-triggered from what is written on the Pods."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Final

from autoscaler.config import WarmStart
from autoscaler.warmpool.claims.claim import Steps
from autoscaler.warmpool.claims.classes import DEFAULT_FORMAT, format_of, pool_class
from autoscaler.warmpool.claims.marks import LABEL_POOL, LABEL_POOL_CLASS
from autoscaler.warmpool.claims.pods import is_adoptable, is_claimed, mark_of
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

SCALE_LOOK: Final = 0.05
"""Seconds between looks while the ReplicaSet is about to follow its Deployment: it takes 10-70 ms on Kubernetes, and
its own Pod, which the adoption spares, is being started meanwhile."""
RETRY: Final = 1.0
"""Seconds after an answer of the cluster that was not the wished one."""
LEFT_ALONE: Final = 2.0
"""Times `WarmStart.reap_after`, after which a labelled member that no `finish` looked after is deleted."""


def room_in(replica_set: Object, pods: Iterable[Object]) -> int:
    """How many more members the ReplicaSet can adopt without having to delete one that serves. Pure.

    `pods` are the revision's active ones; of its own, those that are ready or came by a claim fill a place.
    """
    filled = sum(1 for pod in pods if _is_of(pod, replica_set) and (is_ready(pod) or is_claimed(pod)))
    return int(replica_set["spec"].get("replicas", 1)) - filled


class Adoption:
    """Finishes or undoes what claims began."""

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        members: Members,
        steps: Steps,
        clock: Clock,
        settings: WarmStart,
    ) -> None:
        self._cluster = cluster
        self._deployments = informers[DEPLOYMENT]
        self._members = members
        self._steps = steps
        self._clock = clock
        self._settings = settings
        self._since: dict[str, float] = {}  # uid of a claimed member → when this process first saw it wait

    async def finish(self, key: Key, deployment: Object) -> float | None:
        """One look at one revision; returns the seconds until the next one, or None."""
        reserved = self._idle(self._members.reserved_for(key))
        looks = [await self._undo_if_late(pod, f"its claim for {key} was not carried on") for pod in reserved]
        pods = self._members.of_revision(key, deployment)
        labelled = self._idle(pod for pod in pods if is_claimed(pod) and LABEL_POOL in labels_of(pod))
        if labelled:
            looks += await self._settle(key, deployment, labelled, pods)
        return min((look for look in looks if look is not None), default=None)

    async def reap(self) -> float | None:
        """One look at all claimed members; returns the seconds until the next one (infinite: no hurry), or None."""
        claimed = self._idle(self._members.claimed())
        present = {uid_of(pod) for pod in claimed}
        self._since = {uid: since for uid, since in self._since.items() if uid in present}
        living = {uid_of(deployment) for deployment in self._deployments if not is_deleting(deployment)}
        looks = [
            await self._undo_if_late(pod, "nobody carries its claim on", self._patience(pod, living)) for pod in claimed
        ]
        return min((look for look in looks if look is not None), default=None)

    def _patience(self, pod: Object, living: set[str]) -> float:
        """Seconds for which a claimed member may stay as it is; for ever where it is a ReplicaSet's turn."""
        mark = mark_of(pod)
        if mark is not None and any(_is_of(pod, one) for one in self._members.replica_sets(mark.deployment)):
            return math.inf
        served = mark is not None and mark.deployment in living and LABEL_REVISION in labels_of(pod)
        return self._settings.reap_after * (LEFT_ALONE if served else 1.0)

    def _idle(self, pods: Iterable[Object]) -> list[Object]:
        """Those that no claim of this process is at work on."""
        return [pod for pod in pods if not self._members.is_taken(pod)]

    async def _settle(
        self, key: Key, deployment: Object, labelled: Sequence[Object], pods: Sequence[Object]
    ) -> list[float | None]:
        """Adopt as many as there is room for; the others wait, or go."""
        fitting, others = self._sorted_out(deployment, labelled)
        for pod in others:
            await self._steps.delete(pod, f"it cannot be a replica of {key} any more")
        adopted = await self._adopt(key, deployment, fitting, pods)
        waiting = [pod for pod in fitting if uid_of(pod) not in adopted]
        replica_set = self._members.replica_set(deployment)
        coming = _replicas(deployment) - (_replicas(replica_set) if replica_set is not None else 0)
        for pod in waiting[: max(0, coming)]:  # the ReplicaSet is late, not they
            self._since[uid_of(pod)] = self._clock.monotonic()
        looks = [await self._undo_if_late(pod, f"{key} has no room for it") for pod in waiting]
        return [*looks, SCALE_LOOK if coming > 0 else RETRY] if waiting else looks

    def _sorted_out(self, deployment: Object, labelled: Sequence[Object]) -> tuple[list[Object], list[Object]]:
        """Those that the Deployment may have, ready and old ones first, and those of a former template.

        A template without a format takes members of any: they serve already, and the claim knew the format.
        """
        template = None if is_deleting(deployment) else deployment["spec"]["template"]
        fitting: list[Object] = []
        others: list[Object] = []
        for pod in labelled:
            own = format_of(pod["spec"]) or DEFAULT_FORMAT
            fits = template is not None and labels_of(pod).get(LABEL_POOL_CLASS) == pool_class(template, own)
            (fitting if fits else others).append(pod)
        return sorted(fitting, key=lambda pod: (not is_ready(pod), pod["metadata"]["creationTimestamp"])), others

    async def _adopt(
        self, key: Key, deployment: Object, labelled: Sequence[Object], pods: Sequence[Object]
    ) -> set[str]:
        """Adopt those for which the ReplicaSet, read from the cluster now, has room; returns their uids."""
        known = self._members.replica_set(deployment)
        if known is None or room_in(known, pods) <= 0:
            return set()
        try:
            replica_set = await self._cluster.get(REPLICA_SET, name_of(known), namespace_of(known))
        except ClusterError as error:
            log.info("%s: cannot read its ReplicaSet: %s", key, error)
            return set()
        chosen = labelled[: max(0, room_in(replica_set, pods))]
        return {uid_of(pod) for pod in chosen if await self._adopted(key, pod, replica_set)}

    async def _adopted(self, key: Key, pod: Object, replica_set: Object) -> bool:
        try:
            await self._steps.adopt(key, pod, replica_set)
        except ClusterError as error:
            log.info("%s: warm Pod %s is not adopted: %s", key, key_of(pod), error)
            return False
        self._since.pop(uid_of(pod), None)
        return True

    async def _undo_if_late(self, pod: Object, why: str, patience: float | None = None) -> float | None:
        """Delete what this process has seen wait too long; returns the seconds until then, or until another try.

        Not the claim's own age counts: after a break of the autoscaler a member that serves is not late, we are.
        """
        now = self._clock.monotonic()
        waited = now - self._since.setdefault(uid_of(pod), now)
        left = (self._settings.reap_after if patience is None else patience) - waited
        if left > 0:
            return left
        if not await self._steps.delete(pod, why, as_seen=True):
            return RETRY
        self._since.pop(uid_of(pod), None)
        return None


def _replicas(obj: Object) -> int:
    return int(obj["spec"].get("replicas", 1))


def _is_of(pod: Object, replica_set: Object) -> bool:
    """Whether the Pod is the ReplicaSet's, or will be as soon as that looks."""
    controller = controller_of(pod)
    if controller is not None:
        return bool(controller["uid"] == uid_of(replica_set))
    return is_adoptable(pod) and labels_of(pod)[LABEL_TEMPLATE_HASH] == labels_of(replica_set).get(LABEL_TEMPLATE_HASH)
