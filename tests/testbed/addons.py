"""What runs inside the testbed's cluster: CoreDNS, Knative Serving, Kourier and, on request, Knative Eventing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.testbed import dns, eventing, knative, kourier
from tests.testbed.errors import TestbedError
from tests.testbed.kubectl import Kubectl
from tests.testbed.manifests import WORKLOADS, ordered
from tests.testbed.upstream import Document
from tests.testbed.waiting import becomes, until

Progress = Callable[[str], None]
BASE = "base"
RECORD = "testbed-addons"
"""The ConfigMap that tells what was applied last, so that a second `install` has nothing to do."""
RECORD_NAMESPACE = "kube-system"
APPLY_TIMEOUT = 120.0
"""s; webhooks of a cluster that was started again refuse ConfigMaps until their pods run."""
APPLY_INTERVAL = 1.0
"""s between two tries to apply."""
READY_TIMEOUT = 180.0
"""s; 12 s were seen on a quiet machine, a loaded one takes some times that."""
ESTABLISHED_TIMEOUT = 60.0
"""s; a new kind is served within one."""
PROBE: Document = {
    "apiVersion": "serving.knative.dev/v1",
    "kind": "Service",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {"template": {"spec": {"containers": [{"image": "dev.local/probe:1"}]}}},
}
"""A Service that is only asked about: it passes once both of Serving's webhooks answer."""


@dataclass(frozen=True, slots=True)
class Part:
    """Add-ons that are applied together: a name for the record, one for people, the objects."""

    key: str
    title: str
    documents: Sequence[Document]

    @property
    def digest(self) -> str:
        """What the record holds once this is ready."""
        return hashlib.sha256(json.dumps(self.documents, sort_keys=True).encode()).hexdigest()

    @property
    def workloads(self) -> list[Document]:
        """The objects that have pods."""
        return [document for document in self.documents if document["kind"] in WORKLOADS]


def install(kubectl: Kubectl, eventing: bool, progress: Progress) -> None:
    """Apply the add-ons and wait until they are ready; quick when that was done before and nothing changed.

    May be called before the node is ready. Raises TestbedError when they are not ready in time.
    """
    for part in parts(eventing):
        _ensure(kubectl, part, progress)


def parts(with_eventing: bool) -> list[Part]:
    """What there is to install. Raises TestbedError when upstream's manifests cannot be had."""
    documents = [*dns.documents(), *knative.documents(), *kourier.documents()]
    base = Part(BASE, "CoreDNS, Knative Serving and Kourier", documents)
    return [base, *([Part("eventing", "Knative Eventing", eventing.documents())] if with_eventing else [])]


def _ensure(kubectl: Kubectl, part: Part, progress: Progress) -> None:
    record = kubectl.get("configmap", RECORD, f"--namespace={RECORD_NAMESPACE}")
    applied = record.get("data", {}).get(part.key) == part.digest
    if not applied:
        progress(f"{part.title}: applying {len(part.documents)} objects")
        _apply(kubectl, part)
    progress(f"{part.title}: waiting for {len(part.workloads)} workloads")
    _await_ready(kubectl, part)
    if not applied:
        kubectl.apply([_record(record, part)])
    progress(f"{part.title}: ready")


def _apply(kubectl: Kubectl, part: Part) -> None:
    first, rest = ordered(part.documents)
    kubectl.apply(first)
    kinds = [f"crd/{document['metadata']['name']}" for document in first if document["kind"] != "Namespace"]
    kubectl.wait("--for=condition=Established", *kinds, timeout=ESTABLISHED_TIMEOUT)
    refusals: list[TestbedError] = []

    def accepted() -> bool:
        try:
            kubectl.apply(rest)
        except TestbedError as error:
            refusals.append(error)  # the last one is raised
            return False
        return True

    if not becomes(accepted, APPLY_TIMEOUT, APPLY_INTERVAL):
        raise TestbedError(f"{part.title} could not be applied for {APPLY_TIMEOUT:g} s: {refusals[-1]}") from refusals[
            -1
        ]


def _await_ready(kubectl: Kubectl, part: Part) -> None:
    for workload in part.workloads:
        metadata = workload["metadata"]
        target = f"{workload['kind'].lower()}/{metadata['name']}"
        limit = f"--timeout={READY_TIMEOUT:g}s"
        kubectl.run("rollout", "status", target, f"--namespace={metadata['namespace']}", limit, timeout=READY_TIMEOUT)
    if part.key == BASE:
        until("Knative's webhooks answer", lambda: _webhooks_answer(kubectl), READY_TIMEOUT)


def _webhooks_answer(kubectl: Kubectl) -> bool:
    try:
        kubectl.run("create", "--dry-run=server", "-f", "-", input=json.dumps(PROBE))
    except TestbedError:
        return False
    return True


def _record(record: Document, part: Part) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": RECORD, "namespace": RECORD_NAMESPACE},
        "data": {**record.get("data", {}), part.key: part.digest},
    }
