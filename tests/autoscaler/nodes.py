"""A scheduler and a kubelet for replicas that request a device, with a number of devices that the test sets."""

from __future__ import annotations

from clusters.base.clock import Clock
from clusters.base.objects import POD, Object, is_deleting, name_of, timestamp
from clusters.embedded.cluster import EmbeddedCluster
from tests.autoscaler.world import TEST

RESOURCE = "example.com/gpu"
LACKS = f"0/1 nodes are available: 1 Insufficient {RESOURCE}"


class Nodes:
    """One node with `allocatable` devices; each Pod takes one. `born` contains the uids of all Pods so far."""

    def __init__(self, cluster: EmbeddedCluster, clock: Clock, allocatable: int = 0) -> None:
        self._cluster = cluster
        self._clock = clock
        self.allocatable = allocatable
        self.born: set[str] = set()

    async def look(self) -> None:
        """Bind and start Pods that fit, mark the others unschedulable, and end terminating ones."""
        pods = [pod for pod in (await self._cluster.list(POD)).items if RESOURCE in str(pod["spec"])]
        self.born |= {pod["metadata"]["uid"] for pod in pods}
        for pod in [pod for pod in pods if is_deleting(pod)]:
            await self._cluster.delete(POD, name_of(pod), "default", grace_period=0)
        free = self.allocatable - sum(1 for pod in pods if _is_placed(pod) and not is_deleting(pod))
        for pod in [pod for pod in pods if not _is_placed(pod) and not is_deleting(pod)]:
            await self._report(pod, placed=free > 0)
            free -= 1

    async def pending(self) -> list[Object]:
        """Return the Pods without a node."""
        return [pod for pod in (await self._cluster.list(POD)).items if not _is_placed(pod) and not is_deleting(pod)]

    async def _report(self, pod: Object, *, placed: bool) -> None:
        at = timestamp(self._clock.now())
        lacks = {"status": "False", "reason": "Unschedulable", "message": LACKS}
        scheduled = {"type": "PodScheduled", "lastTransitionTime": at, **({"status": "True"} if placed else lacks)}
        status: Object = {"phase": "Pending", "conditions": [scheduled]}
        if placed:
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": at}
            status = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [scheduled, ready]}
            patch = {"spec": {"nodeName": "node"}}
            await self._cluster.patch(POD, name_of(pod), patch, "default", manager=TEST)
        elif (pod.get("status") or {}).get("conditions"):
            return  # it was said already
        await self._cluster.patch(POD, name_of(pod), {"status": status}, "default", manager=TEST, subresource="status")


def _is_placed(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName"))
