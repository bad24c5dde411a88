"""Idle replicas go first: which Pods a Deployment that becomes smaller is to end.

A ReplicaSet chooses by itself: Pods that are not ready first, then the lowest `pod-deletion-cost`, then the youngest
(https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost). So the ready ones to go get
a low cost before the Deployment is scaled. What was in flight at the last reading decides, then age; a replica that was
not read counts as busy. Nothing is said where all are equally busy. It is a hint: where it cannot be given, replicas go
all the same, after what they have in flight.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from autoscaler.metrics.stat import Sample
from autoscaler.reconciler.observed import Observed
from clusters.base.api import Cluster
from clusters.base.errors import ClusterError
from clusters.base.objects import POD, Object, annotations_of, is_deleting, key_of, name_of, namespace_of
from clusters.net.endpoints import is_ready

log = logging.getLogger(__name__)

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' own annotation on a Pod; e.g. "-100", 0 where it is absent."""
FIRST: Final = "-100"
"""Of Pods to go: below what anybody leaves out, above what somebody may set lower by hand."""
UNREAD: Final = float("inf")


class IdleFirst:
    """Marks the Pods to go, and takes the mark back from those that stayed."""

    def __init__(self, cluster: Cluster, manager: str) -> None:
        self._cluster = cluster
        self._manager = manager

    async def prepare(self, observed: Observed, replicas: int, last: Mapping[str, Sample]) -> None:
        """Before a Deployment is scaled down to `replicas`; `last` are its replicas' readings. Raises nothing."""
        in_flight = {pod: sample.in_flight for pod, sample in last.items()}
        marks = cost_changes(observed.pods, in_flight, observed.current - replicas)
        await asyncio.gather(*(self._mark(pod, cost) for pod, cost in marks))

    async def _mark(self, pod: Object, cost: str | None) -> None:
        patch = {"metadata": {"annotations": {DELETION_COST: cost}}}
        try:
            await self._cluster.patch(POD, name_of(pod), patch, namespace_of(pod), manager=self._manager)
        except ClusterError as error:
            log.warning("%s: not marked as one to go first: %s", key_of(pod), error)


def cost_changes(pods: Sequence[Object], in_flight: Mapping[str, float], going: int) -> list[tuple[Object, str | None]]:
    """The Pods whose mark is to change, each with the new one, None for no mark.

    `going` replicas go; `in_flight` has the slots in use by Pod (`namespace/name`). No more than `going` get a mark.
    """
    staying = [pod for pod in pods if not is_deleting(pod)]
    ready = [pod for pod in staying if is_ready(pod)]
    going -= len(staying) - len(ready)  # Kubernetes ends those that are not ready first, whatever their cost
    if not 0 < going < len(ready) or len({in_flight.get(str(key_of(pod)), UNREAD) for pod in ready}) == 1:
        return []
    ranked = sorted(sorted(ready, key=_made, reverse=True), key=lambda pod: in_flight.get(str(key_of(pod)), UNREAD))
    marked = [pod for pod in ready if annotations_of(pod).get(DELETION_COST) == FIRST]
    first, rest = ranked[:going], ranked[going:]
    return [(pod, FIRST) for pod in first if pod not in marked] + [(pod, None) for pod in rest if pod in marked]


def _made(pod: Object) -> str:
    """When it was created: RFC 3339 in UTC, which sorts as text."""
    return str(pod["metadata"].get("creationTimestamp") or "")
