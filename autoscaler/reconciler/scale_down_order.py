"""Choose the Pods that a Deployment terminates when it scales down: idle ones first.

A ReplicaSet terminates Pods that are not ready first, then those with the lowest `pod-deletion-cost`, then the youngest
(https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost). Therefore ready Pods to
terminate get a low cost before the Deployment is scaled. They are chosen by requests in flight at the last reading,
then by age; a replica without a reading counts as busy. Nothing is marked when all are equally busy. Pods that a
restart has still to replace come before all others. The mark is a hint: if it cannot be written, the Deployment is
scaled anyway, and each replica finishes its requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from autoscaler.metrics.stat import Sample
from autoscaler.reconciler.observed import ObservedRevision
from clusters.base.api import Cluster
from clusters.base.errors import ClusterError
from clusters.base.objects import POD, Object, annotations_of, is_deleting, key_of, name_of, namespace_of
from clusters.net.endpoints import is_ready

log = logging.getLogger(__name__)

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' own annotation on a Pod, e.g. "-100"; 0 if absent."""
FIRST: Final = "-100"
"""Cost of Pods to terminate: below the default, above costs that users may set lower by hand."""
UNREAD: Final = float("inf")


class ScaleDownOrder:
    """Marks the Pods to terminate, and removes the mark from those that stayed."""

    def __init__(self, cluster: Cluster, manager: str) -> None:
        self._cluster = cluster
        self._manager = manager

    async def prepare(self, observed: ObservedRevision, replicas: int, last: Mapping[str, Sample]) -> None:
        """Mark Pods before a Deployment is scaled down to `replicas`; `last` contains their readings. Raises
        nothing.
        """
        in_flight = {pod: sample.in_flight for pod, sample in last.items()}
        marks = cost_changes(observed.pods, in_flight, observed.current - replicas, observed.restarting)
        await asyncio.gather(*(self._mark(pod, cost) for pod, cost in marks))

    async def _mark(self, pod: Object, cost: str | None) -> None:
        patch = {"metadata": {"annotations": {DELETION_COST: cost}}}
        try:
            await self._cluster.patch(POD, name_of(pod), patch, namespace_of(pod), manager=self._manager)
        except ClusterError as error:
            log.warning("%s: cannot set its deletion cost: %s", key_of(pod), error)


def cost_changes(
    pods: Sequence[Object], in_flight: Mapping[str, float], going: int, restarting: Collection[str] = ()
) -> list[tuple[Object, str | None]]:
    """Return the Pods whose mark must change, each with its new mark; None removes it.

    `going` replicas are to be terminated; `in_flight` contains the slots in use by Pod (`namespace/name`). At most
    `going` Pods get a mark, those named in `restarting` first.
    """
    staying = [pod for pod in pods if not is_deleting(pod)]
    ready = [pod for pod in staying if is_ready(pod)]
    going -= len(staying) - len(ready)  # Kubernetes terminates these first, regardless of cost
    if not 0 < going < len(ready):
        return []
    if not restarting and len({in_flight.get(str(key_of(pod)), UNREAD) for pod in ready}) == 1:
        return []
    ranked = sorted(
        sorted(ready, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""), reverse=True),
        key=lambda pod: (name_of(pod) not in restarting, in_flight.get(str(key_of(pod)), UNREAD)),
    )
    marked = [pod for pod in ready if annotations_of(pod).get(DELETION_COST) == FIRST]
    first, rest = ranked[:going], ranked[going:]
    return [(pod, FIRST) for pod in first if pod not in marked] + [(pod, None) for pod in rest if pod in marked]
