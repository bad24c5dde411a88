"""Adopt matching Pods without a controller for a ReplicaSet, and release Pods that no longer match.

It follows `PodControllerRefManager` of Kubernetes (`pkg/controller/controller_ref_manager.go`). A warm start is such an
adoption.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clusters.base.api import Cluster
from clusters.base.objects import (
    LABEL_TEMPLATE_HASH,
    POD,
    REPLICA_SET,
    Key,
    Object,
    controller_of,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
    version_of,
)
from clusters.embedded.workloads.ranking import is_active
from clusters.embedded.workloads.template import match_labels_of
from clusters.runtime.informer import Informer

MANAGER = "replicaset-controller"
BY_HASH = "template-hash"
"""Index of Pods and ReplicaSets by NAMESPACE/HASH, which also finds Pods that have no controller yet."""


def by_template_hash(obj: Object) -> Iterable[str]:
    """Return the namespace and the label `pod-template-hash`, as index value."""
    value = labels_of(obj).get(LABEL_TEMPLATE_HASH)
    return () if value is None else (f"{namespace_of(obj)}/{value}",)


def matches(replica_set: Object, pod: Object) -> bool:
    """Return whether the selector matches the Pod. An empty selector matches no Pod."""
    wanted, labels = match_labels_of(replica_set), labels_of(pod)
    return bool(wanted) and all(labels.get(name) == value for name, value in wanted.items())


class PodControllerRefManager:
    """Adopt and release Pods, by the informer and the writes that it does not show yet."""

    def __init__(self, cluster: Cluster, pods: Informer) -> None:
        self._cluster = cluster
        self._pods = pods

    async def claim_pods(self, replica_set: Object) -> list[Object]:
        """Return the ReplicaSet's active Pods, after adoptions and releases.

        Raises Conflict or NotFound when a Pod to adopt or release has changed. The caller should retry.
        """
        claimed = []
        for pod in self._candidates(replica_set):
            references = pod["metadata"].get("ownerReferences") or ()
            controller = controller_of(pod)
            if controller is not None and controller["uid"] != uid_of(replica_set):
                continue
            if not matches(replica_set, pod):
                if controller is not None:  # release
                    others = [reference for reference in references if reference["uid"] != uid_of(replica_set)]
                    await self._set_owners(pod, others or None)
            elif controller is None:  # adopt
                references = [*references, owner_reference(REPLICA_SET, replica_set)]
                claimed.append(await self._set_owners(pod, references))
            else:
                claimed.append(pod)
        return claimed

    def _candidates(self, replica_set: Object) -> list[Object]:
        """Return active Pods that may match the selector or belong to the ReplicaSet."""
        found: dict[Key, Object] = {}
        for value in by_template_hash(replica_set):
            found |= {key_of(pod): pod for pod in self._pods.indexed(BY_HASH, value)}
        found |= {key_of(pod): pod for pod in self._pods.indexed("owner", uid_of(replica_set))}
        own = self._pods.own_writes
        return [own.latest(pod) for pod in found.values() if is_active(pod) and not own.is_deleting(pod)]

    async def _set_owners(self, pod: Object, references: list[Any] | None) -> Object:
        """Set the owner references on condition that the Pod is unchanged, since a claim may be changing its labels."""
        patch = {"metadata": {"resourceVersion": version_of(pod), "ownerReferences": references}}
        written = await self._cluster.patch(POD, name_of(pod), patch, namespace_of(pod), manager=MANAGER)
        self._pods.own_writes.record(written)
        return written
