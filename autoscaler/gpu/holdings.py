"""The holders of a cluster's GPUs: the Pods of Revisions, warm pools and jobs by node, and the units left. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from autoscaler.gpu.claims import Place
from autoscaler.gpu.dra import DraObjects
from autoscaler.gpu.inventory import CLAIM_KIND, Inventory, make_inventory, parts_of
from autoscaler.gpu.owners import owner_of
from autoscaler.warmpool.claims.marks import LABEL_POOL
from clusters.base.objects import (
    LABEL_REVISION,
    Key,
    Object,
    controller_of,
    is_deleting,
    key_of,
    labels_of,
    namespace_of,
    uid_of,
)


class Holder(NamedTuple):
    """A Revision, a warm pool, or the owner of other Pods, with its kind."""

    kind: str
    key: Key

    @classmethod
    def revision(cls, key: Key) -> Holder:
        """Return the holder of a Revision's Pods."""
        return cls("Revision", key)

    @classmethod
    def pool(cls, key: Key) -> Holder:
        """Return the holder of a warm pool's free members."""
        return cls("WarmPool", key)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The inventory, and the Pods with GPUs that have a node, by holder.

    `devices` are the resources that are devices of ResourceSlices: the scheduler does not preempt Pods for them.
    """

    inventory: Inventory = field(default_factory=Inventory)
    pods: Mapping[Holder, Sequence[Object]] = field(default_factory=dict)
    devices: frozenset[str] = frozenset()

    def held(self, holder: Holder) -> dict[str, int]:
        """Return the number of Pods by node. Workers of a replica belong to its first Pod, and are not counted."""
        return _by_node(self.pods.get(holder, ()))

    def leaving(self, holder: Holder) -> dict[str, int]:
        """Return the number of those Pods that are being deleted, by node."""
        return _by_node(filter(is_deleting, self.pods.get(holder, ())))

    def places(self, holders: Container[Holder]) -> Iterator[Place]:
        """Yield the units that these holders may have, with those that they have.

        Units that they hold are theirs. A claim of a device may outlive its Pod by seconds. Such a claim does
        not count: the device is released soon, and running Pods need not make room for it.
        """
        theirs = {key_of(pod) for holder, pods in self.pods.items() if holder in holders for pod in pods}
        for node in self.inventory.nodes:
            for resource, units in node.allocatable.items():
                if not units:  # as if the node did not have the resource
                    continue
                foreign = [pod for pod in node.pods if pod.key not in theirs and pod.owner.kind != CLAIM_KIND]
                others = math.ceil(sum(pod.amounts.get(resource, 0) for pod in foreign) + parts_of(foreign, resource))
                own = sum(pod.amounts.get(resource, 0) for pod in node.pods if pod.key in theirs)
                yield Place(
                    node.name,
                    resource,
                    max(units - others, min(own, units)),
                    node.types.get(resource, ""),
                    node.state == "Ready",
                    node.labels,
                    node.taints,
                )


def _by_node(pods: Iterable[Object]) -> dict[str, int]:
    return dict(
        Counter(str(pod["spec"]["nodeName"]) for pod in pods if (controller_of(pod) or {}).get("kind") != "Pod")
    )


def make_snapshot(nodes: Sequence[Object], pods: Sequence[Object], dra: DraObjects) -> Snapshot:
    """Return what these objects are. Members of warm pools that a Revision has claimed belong to the Revision."""
    by_uid = {uid_of(pod): pod for pod in pods}
    holders: dict[Holder, list[Object]] = {}
    for pod in pods:
        if (pod.get("spec") or {}).get("nodeName"):
            holders.setdefault(_holder_of(pod, by_uid), []).append(pod)
    by_plugin = {name for node in nodes for name in (node.get("status") or {}).get("allocatable") or {}}
    named = {str((one.get("spec") or {}).get("extendedResourceName") or "") for one in dra.classes}
    return Snapshot(make_inventory(nodes, pods, dra), holders, frozenset(named - by_plugin - {""}))


def _holder_of(pod: Object, by_uid: Mapping[str, Object]) -> Holder:
    labels, namespace, controller = labels_of(pod), namespace_of(pod), controller_of(pod)
    if revision := labels.get(LABEL_REVISION):
        return Holder.revision(Key(namespace, revision))
    if pool := labels.get(LABEL_POOL):
        return Holder.pool(Key(namespace, pool))
    if controller is not None and controller.get("kind") == "Pod" and (leader := by_uid.get(controller["uid"])):
        return _holder_of(leader, {})
    owner = owner_of(pod, by_uid)
    return Holder(owner.kind, Key(owner.namespace, owner.name))
