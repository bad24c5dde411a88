"""The owner of a Pod: the object by which people know it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from autoscaler.warmpool.claims.marks import LABEL_POOL
from clusters.base.objects import (
    LABEL_TEMPLATE_HASH,
    Object,
    controller_of,
    labels_of,
    name_of,
    namespace_of,
)

LABEL_MODEL: Final = "knodel.dev/model"
"""`serving.types.annotations.LABEL_MODEL`."""
OWNER_LABELS: Final[Mapping[str, str]] = {
    LABEL_MODEL: "Model",
    LABEL_POOL: "WarmPool",
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
    "ray.io/cluster": "RayCluster",
    "volcano.sh/job-name": "Job",
}
"""Kinds of owners by the label that has their name. Their Pods are controlled by objects in between."""


class Owner(NamedTuple):
    """Kind, namespace and name of an owner."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def owner_of(pod: Object, pods: Mapping[str, Object]) -> Owner:
    """Return the owner of a Pod: a Model, warm pool or training job by its label, else the controller, else the Pod.

    `pods` are all Pods by their uid: a worker of a Model with several Pods for each replica belongs to its leader's
    owner.
    """
    namespace, labels, reference = namespace_of(pod), labels_of(pod), controller_of(pod)
    for label, kind in OWNER_LABELS.items():
        if labels.get(label):
            return Owner(kind, namespace, labels[label])
    if reference is None:
        return Owner("Pod", namespace, name_of(pod))
    kind, name = str(reference.get("kind", "")), str(reference.get("name", ""))
    leader = pods.get(str(reference.get("uid", ""))) if kind == "Pod" else None
    if leader is not None and leader is not pod:
        return owner_of(leader, {})
    template = labels.get(LABEL_TEMPLATE_HASH)
    if kind == "ReplicaSet" and template and name.endswith(f"-{template}"):
        return Owner("Deployment", namespace, name.removesuffix(f"-{template}"))
    return Owner(kind, namespace, name)
