"""KubeRay as the testbed runs it on request: its operator, without webhooks."""

from __future__ import annotations

from tests.testbed import images, upstream
from tests.testbed.manifests import WORKLOADS, adapted
from tests.testbed.upstream import Document

NAMESPACE = "ray-system"
KUBERAY = "github.com/ray-project/kuberay/ray-operator"
IMAGE = "kuberay/operator"
PLACES = (
    "config/crd/bases",
    "config/manager/manager.yaml",
    "config/rbac/leader_election_role.yaml",
    "config/rbac/leader_election_role_binding.yaml",
    "config/rbac/role.yaml",
    "config/rbac/role_binding.yaml",
    "config/rbac/service_account.yaml",
)
CLUSTER_WIDE = frozenset({"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"})


def documents() -> list[Document]:
    """Every object of KubeRay. Raises TestbedError when its sources cannot be had."""
    module = images.module("kuberay")
    folder = upstream.sources(module, [KUBERAY])[KUBERAY]
    operator = images.reference(module, "kuberay-operator")
    namespace: Document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    found = adapted([namespace, *upstream.documents(folder, *PLACES)], {IMAGE: operator})
    return [_placed(document) for document in found]


def _placed(document: Document) -> Document:
    """Write what upstream's kustomization does, the namespace; the program is the entrypoint of our image.

    With upstream's limit of a tenth of a core, the liveness probe fails while the machine is busy.
    """
    if document["kind"] not in (*CLUSTER_WIDE, "Namespace"):
        document["metadata"]["namespace"] = NAMESPACE
    for subject in document.get("subjects", []):
        subject["namespace"] = NAMESPACE
    if document["kind"] in WORKLOADS:
        for container in document["spec"]["template"]["spec"]["containers"]:
            del container["command"], container["resources"]["limits"]["cpu"]
    return document
