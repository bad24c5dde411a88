"""What runs inside the testbed's cluster: CoreDNS, Knative Serving, Kourier; on request Eventing, KubeRay, Volcano."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tests.testbed import dns, eventing, knative, kourier, kuberay, volcano
from tests.testbed.errors import TestbedError
from tests.testbed.kubectl import Kubectl
from tests.testbed.manifests import WORKLOADS, ordered
from tests.testbed.progress import Report
from tests.testbed.upstream import Document
from tests.testbed.versions import EVENTING, KUBERAY, VOLCANO, Module
from tests.testbed.waiting import becomes

RECORD = "testbed-addons"
"""The ConfigMap that tells what was applied last, so that a second `install` has nothing to do."""
RECORD_NAMESPACE = "kube-system"
APPLY_TIMEOUT = 120.0
"""s; webhooks of a cluster that was started again refuse ConfigMaps until their pods run."""
TRY_INTERVAL = 0.3
"""s between two tries of what is refused while pods start."""
READY_TIMEOUT = 180.0
"""s; 12 s were seen on a quiet machine, a loaded one takes some times that."""
ESTABLISHED_TIMEOUT = 60.0
"""s; a new kind is served within one."""
_PROBE = {"name": "probe", "namespace": "default"}
_PROBE_CONTAINER = {"name": "probe", "image": "dev.local/probe:1"}
SERVING_PROBE: Document = {
    "apiVersion": "serving.knative.dev/v1",
    "kind": "Service",
    "metadata": _PROBE,
    "spec": {"template": {"spec": {"containers": [_PROBE_CONTAINER]}}},
}
EVENTING_PROBE: Document = {"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "metadata": _PROBE}
KUBERAY_PROBE: Document = {
    "apiVersion": "ray.io/v1",
    "kind": "RayService",
    "metadata": _PROBE,
    "spec": {"rayClusterConfig": {"headGroupSpec": {"template": {"spec": {"containers": [_PROBE_CONTAINER]}}}}},
}
VOLCANO_PROBE: Document = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "metadata": _PROBE,
    "spec": {"minMember": 1},
}
"""Objects that are only asked about: they pass once the webhooks answer."""


@dataclass(frozen=True, slots=True)
class Part:
    """Add-ons that are applied together: a name for the record, one for people, the objects, what probes webhooks."""

    key: str
    title: str
    documents: Sequence[Document]
    probe: Document

    @property
    def digest(self) -> str:
        """What the record holds once this is applied."""
        return hashlib.sha256(json.dumps(self.documents, sort_keys=True).encode()).hexdigest()

    @property
    def workloads(self) -> list[Document]:
        """The objects that have pods: Deployments, all of them."""
        return [document for document in self.documents if document["kind"] in WORKLOADS]


def install(kubectl: Kubectl, optional: Collection[Module], report: Report) -> bool:
    """Apply the add-ons that were not, and wait until all are ready; whether one was applied.

    May be called before the node is ready. Raises TestbedError when they are not ready in time.
    """
    applied = [part.key for part in parts(optional) if _ensure(kubectl, part, report)]
    return bool(applied)


def parts(optional: Collection[Module]) -> list[Part]:
    """What there is to install. Raises TestbedError when upstream's manifests cannot be had."""
    documents = [*dns.documents(), *knative.documents(), *kourier.documents()]
    found = [Part("base", "CoreDNS, Knative Serving and Kourier", documents, SERVING_PROBE)]
    if EVENTING in optional:
        found.append(Part("eventing", "Knative Eventing", eventing.documents(), EVENTING_PROBE))
    if KUBERAY in optional:
        found.append(Part("kuberay", "KubeRay", kuberay.documents(), KUBERAY_PROBE))
    if VOLCANO in optional:
        found.append(Part("volcano", "Volcano", volcano.documents(), VOLCANO_PROBE))
    return found


def _ensure(kubectl: Kubectl, part: Part, report: Report) -> bool:
    record = kubectl.get("configmap", RECORD, f"--namespace={RECORD_NAMESPACE}")
    outdated: bool = record.get("data", {}).get(part.key) != part.digest
    if outdated:
        report(f"{part.title}: applying {len(part.documents)} objects")
        _apply(kubectl, part)
        kubectl.apply([_record(record, part)])
    report(f"{part.title}: waiting for {len(part.workloads)} workloads")
    _await_ready(kubectl, part)
    report(f"{part.title}: ready")
    return outdated


def _apply(kubectl: Kubectl, part: Part) -> None:
    first, rest = ordered(part.documents)
    kubectl.apply(first)
    kinds = [f"crd/{document['metadata']['name']}" for document in first if document["kind"] != "Namespace"]
    kubectl.wait("--for=condition=Established", *kinds, timeout=ESTABLISHED_TIMEOUT)
    _insist(f"{part.title}: objects applied", lambda: kubectl.apply(rest), APPLY_TIMEOUT)


def _await_ready(kubectl: Kubectl, part: Part) -> None:
    for workload in part.workloads:
        kubectl.await_rollout(workload["metadata"]["name"], workload["metadata"]["namespace"], READY_TIMEOUT)
    asked = json.dumps(part.probe)
    ask = ("create", "--dry-run=server", "-f", "-")
    _insist(f"{part.title}: webhooks answer", lambda: kubectl.run(*ask, input=asked), READY_TIMEOUT)


def _insist(what: str, action: Callable[[], object], timeout: float) -> None:
    """Try until it is not refused. Raises TestbedError with the last refusal after `timeout` seconds."""
    refusals: list[TestbedError] = []

    def accepted() -> bool:
        try:
            action()
        except TestbedError as error:
            refusals.append(error)
            return False
        return True

    if not becomes(accepted, timeout, TRY_INTERVAL):
        last = refusals[-1]
        raise TestbedError(f"{what}: not within {timeout:g} s, {last}") from last


def _record(record: Document, part: Part) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": RECORD, "namespace": RECORD_NAMESPACE},
        "data": {**record.get("data", {}), part.key: part.digest},
    }
