"""Volcano as the testbed runs it on request: its scheduler and controllers, without webhooks, and a queue for tests."""

from __future__ import annotations

from tests.testbed import images, upstream
from tests.testbed.manifests import WORKLOADS, adapted
from tests.testbed.upstream import Document

NAMESPACE = "volcano-system"
VOLCANO = "volcano.sh/volcano"
MANIFEST = "installer/volcano-development.yaml"
IMAGES = {
    "docker.io/volcanosh/vc-controller-manager:v1.14.0": "volcano-controller-manager",
    "docker.io/volcanosh/vc-scheduler:v1.14.0": "volcano-scheduler",
}
WEBHOOKS = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})
ADMISSION = "volcano-admission"
"""How the names of the webhooks' own objects begin. They need certificates, and only refuse faulty objects."""
CONTROLLERS = "pg-controller,queue-controller"
"""The controllers of PodGroups and queues. Those of Volcano's Jobs have no work here."""
QUEUE = "knodel-tests"
QUEUE_CPU = "1500m"
"""The most processor time that Pods of the queue may request together."""


def documents() -> list[Document]:
    """Every object of Volcano. Raises TestbedError when its sources cannot be had."""
    module = images.module("volcano")
    folder = upstream.sources(module, [VOLCANO])[VOLCANO]
    made = {name: images.reference(module, binary) for name, binary in IMAGES.items()}
    found = [one for one in adapted(upstream.documents(folder, MANIFEST), made) if _is_wanted(one)]
    return [*(_started(one) for one in found), _queue()]


def _is_wanted(document: Document) -> bool:
    kind, name = document["kind"], str(document["metadata"]["name"])
    if kind in WEBHOOKS or name.startswith(ADMISSION):
        return False
    return name != "volcano-monitoring" and document["metadata"].get("namespace") != "volcano-monitoring"


def _started(document: Document) -> Document:
    """Leave out what upstream's arguments have for its shell, and the capability that Pod Security refuses."""
    if document["kind"] in WORKLOADS:
        for container in document["spec"]["template"]["spec"]["containers"]:
            container["args"] = [word for word in container["args"] if word != "2>&1"]
            container["securityContext"]["capabilities"].pop("add")
            container["imagePullPolicy"] = "IfNotPresent"
            if container["name"] == "volcano-controllers":
                container["args"].append(f"--controllers={CONTROLLERS}")
    return document


def _queue() -> Document:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": QUEUE},
        "spec": {"weight": 1, "reclaimable": True, "capability": {"cpu": QUEUE_CPU}},
    }
