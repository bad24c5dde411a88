"""Which Pods are a ReplicaSet's: it adopts matching Pods without controller and releases those that match no more.

As Kubernetes' `PodControllerRefManager` (`pkg/controller/controller_ref_manager.go`). A warm start is such an adoption.
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
from clusters.runtime.expectations import Expectations
from clusters.runtime.informer import Informer

MANAGER = "replicaset-controller"
BY_HASH = "template-hash"
"""Index of both informers: NAMESPACE/HASH, to find the ReplicaSet of a Pod without owner and the other way round."""


def by_template_hash(obj: Object) -> Iterable[str]:
    """Index values: the label `pod-template-hash` within its namespace."""
    value = labels_of(obj).get(LABEL_TEMPLATE_HASH)
    return () if value is None else (f"{namespace_of(obj)}/{value}",)


def matches(replica_set: Object, pod: Object) -> bool:
    """Whether the selector takes the Pod; an empty selector takes none."""
    wanted, labels = match_labels_of(replica_set), labels_of(pod)
    return bool(wanted) and all(labels.get(name) == value for name, value in wanted.items())


class Claims:
    """Adoption and release, with a memory of what the informer has not shown yet."""

    def __init__(self, cluster: Cluster, pods: Informer, expectations: Expectations) -> None:
        self._cluster = cluster
        self._pods = pods
        self._expectations = expectations
        self._adopted: dict[str, tuple[str, Object]] = {}  # Pod's uid → (its version before, the Pod after)

    async def claim(self, replica_set: Object) -> list[Object]:
        """The ReplicaSet's active Pods, as seen in one moment.

        Raises Conflict or NotFound when a Pod to adopt or release changed meanwhile: try again.
        """
        claimed = []
        for pod in self._candidates(replica_set):
            controller = controller_of(pod)
            if controller is not None and controller["uid"] != uid_of(replica_set):
                continue
            if not matches(replica_set, pod):
                if controller is not None:
                    await self._release(replica_set, pod)
            elif controller is None:
                claimed.append(await self._adopt(replica_set, pod))
            else:
                claimed.append(pod)
        return claimed

    def _candidates(self, replica_set: Object) -> list[Object]:
        found: dict[Key, Object] = {}
        for value in by_template_hash(replica_set):
            found |= {key_of(pod): pod for pod in self._pods.indexed(BY_HASH, value)}
        found |= {key_of(pod): pod for pod in self._pods.indexed("owner", uid_of(replica_set))}
        deleting = self._expectations.is_deleting
        return [self._latest(pod) for pod in found.values() if is_active(pod) and not deleting(pod)]

    def _latest(self, pod: Object) -> Object:
        before, adopted = self._adopted.get(uid_of(pod), ("", pod))
        if version_of(pod) == before:
            return adopted
        self._adopted.pop(uid_of(pod), None)
        return pod

    async def _adopt(self, replica_set: Object, pod: Object) -> Object:
        references = [*(pod["metadata"].get("ownerReferences") or ()), owner_reference(REPLICA_SET, replica_set)]
        adopted = await self._set_owners(pod, references)
        self._adopted[uid_of(pod)] = (version_of(pod), adopted)
        return adopted

    async def _release(self, replica_set: Object, pod: Object) -> None:
        references = pod["metadata"].get("ownerReferences") or ()
        others = [reference for reference in references if reference["uid"] != uid_of(replica_set)]
        await self._set_owners(pod, others or None)

    async def _set_owners(self, pod: Object, references: list[Any] | None) -> Object:
        """With the Pod's version as precondition: a claimer may be changing its labels at this moment."""
        patch = {"metadata": {"resourceVersion": version_of(pod), "ownerReferences": references}}
        return await self._cluster.patch(POD, name_of(pod), patch, namespace_of(pod), manager=MANAGER)
