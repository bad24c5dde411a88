"""Pods of groups for tests, and the kubelet that runs them."""

from __future__ import annotations

from typing import Any

from clusters.base.api import Cluster
from clusters.base.objects import POD, Object, labels_of, name_of
from serving.makers.pod_spec import make_template
from serving.types.annotations import LABEL_GROUP_ROLE
from serving.types.settings.settings import ServerSettings
from tests.serving.models import model

NAMESPACE = "default"
LEADER = "large-00001-deployment-7d4b9-x2x8q"
WORKERS: dict[str, Any] = {"count": 2, "resources": {"cpu": "2", "memory": "4Gi", "gpu": 1}}
SIDECAR: Object = {"name": "queue-proxy", "image": "knative/queue", "ports": [{"containerPort": 8012}]}


def leader_pod(workers: dict[str, Any] | None = None, name: str = LEADER, **spec: Any) -> Object:
    """A leader's Pod as Knative makes it of a Revision's template. `spec` are more fields of the Pod's spec."""
    made = model(
        "large", modelFormat="vllm", workers=WORKERS | (workers or {}), storage={"secretRef": {"name": "keys"}}
    )
    template = make_template(made, None, ServerSettings(image="knodel.dev/server:test"))
    metadata = template["metadata"]
    server, *_ = template["spec"]["containers"]
    env = [*server["env"], {"name": "K_REVISION", "value": "large-00001"}, {"name": "PORT", "value": "8080"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "annotations": metadata["annotations"],
            "labels": {
                **metadata["labels"],
                "serving.knative.dev/revision": "large-00001",
                "serving.knative.dev/service": "large",
                "app": "large-00001",
                "pod-template-hash": "7d4b9",
            },
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [{**server, "env": env}, SIDECAR],
            "volumes": [*template["spec"]["volumes"], {"name": "knative-internal", "emptyDir": {}}],
            **spec,
        },
    }


def leader_status(restarts: int = 0, phase: str = "Running") -> Object:
    """The status of a leader with an address, which is not ready before its workers."""
    return {
        "phase": phase,
        "podIP": "10.0.0.7",
        "containerStatuses": [{"name": "server", "restartCount": restarts, "ready": False}],
    }


READY: Object = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
ENDED: Object = {
    "phase": "Failed",
    "containerStatuses": [{"name": "server", "state": {"terminated": {"exitCode": 137, "message": "out of memory\n"}}}],
}
UNSCHEDULABLE: Object = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
    ],
}


async def set_status(cluster: Cluster, name: str, status: Object) -> None:
    """Play the kubelet."""
    await cluster.patch(POD, name, {"status": status}, NAMESPACE, manager="kubelet", subresource="status")


async def workers_in(cluster: Cluster) -> dict[str, Object]:
    """The workers' Pods by the last part of their names."""
    found = (await cluster.list(POD, NAMESPACE)).items
    return {name_of(pod).rpartition("-")[2]: pod for pod in found if labels_of(pod).get(LABEL_GROUP_ROLE) == "worker"}
