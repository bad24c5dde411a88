"""Validate a revision's PodSpec: the fields that Knative allows, and those that need a feature flag.

Source: knative/serving `pkg/apis/serving/fieldmask.go` and `k8s_validation.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.base.names import subdomain_fault
from tests.support.knative_webhook.checks import Faults
from tests.support.knative_webhook.container_rules import check_container
from tests.support.knative_webhook.volume_rules import check_volumes

MULTI_CONTAINER = "multi-container"

POD_FIELDS = (
    "serviceAccountName",
    "containers",
    "volumes",
    "imagePullSecrets",
    "enableServiceLinks",
    "automountServiceAccountToken",
)
POD_FLAGS = {
    "affinity": "kubernetes.podspec-affinity",
    "topologySpreadConstraints": "kubernetes.podspec-topologyspreadconstraints",
    "hostAliases": "kubernetes.podspec-hostaliases",
    "nodeSelector": "kubernetes.podspec-nodeselector",
    "runtimeClassName": "kubernetes.podspec-runtimeclassname",
    "tolerations": "kubernetes.podspec-tolerations",
    "securityContext": "kubernetes.podspec-securitycontext",
    "shareProcessNamespace": "kubernetes.podspec-shareprocessnamespace",
    "priorityClassName": "kubernetes.podspec-priorityclassname",
    "schedulerName": "kubernetes.podspec-schedulername",
    "initContainers": "kubernetes.podspec-init-containers",
    "dnsPolicy": "kubernetes.podspec-dnspolicy",
    "dnsConfig": "kubernetes.podspec-dnsconfig",
    "hostIPC": "kubernetes.podspec-hostipc",
    "hostPID": "kubernetes.podspec-hostpid",
    "hostNetwork": "kubernetes.podspec-hostnetwork",
}
_REFUSED = (
    "restartPolicy", "terminationGracePeriodSeconds", "activeDeadlineSeconds", "nodeName", "hostname", "subdomain",
    "priority", "readinessGates", "serviceAccount", "overhead", "preemptionPolicy", "setHostnameAsFQDN", "os",
    "hostUsers", "schedulingGates", "resourceClaims", "resources", "ephemeralContainers",
)  # fmt: skip


def check_pod_spec(faults: Faults, path: str, spec: Mapping[str, Any], own: tuple[str, ...]) -> None:
    """Validate a PodSpec; `own` are the additional fields of a RevisionSpec."""
    faults.known_fields(path, spec, (*POD_FIELDS, *own), flagged=POD_FLAGS, refused=_REFUSED)
    if spec.get("automountServiceAccountToken") not in (None, False):
        faults.add(f"{path}.automountServiceAccountToken", "must not be set to true: only false is allowed")
    faults.boolean(f"{path}.enableServiceLinks", spec.get("enableServiceLinks"))
    account = faults.string(f"{path}.serviceAccountName", spec.get("serviceAccountName"))
    if account and subdomain_fault(account):
        faults.add(f"{path}.serviceAccountName", subdomain_fault(account))
    for where, secret in faults.items(f"{path}.imagePullSecrets", spec.get("imagePullSecrets")):
        faults.known_fields(where, faults.map(where, secret), ("name",))
    containers = [
        (where, faults.map(where, item)) for where, item in faults.items(f"{path}.containers", spec.get("containers"))
    ]
    volumes = check_volumes(faults, f"{path}.volumes", spec.get("volumes"), [container for _, container in containers])
    _check_containers(faults, f"{path}.containers", containers, volumes)


def _check_containers(
    faults: Faults, path: str, containers: list[tuple[str, Mapping[str, Any]]], volumes: Mapping[str, Mapping[str, Any]]
) -> None:
    if not containers:
        faults.add(path, "missing field: one container is required")
    if len(containers) > 1 and MULTI_CONTAINER not in faults.features:
        faults.add(path, f"{MULTI_CONTAINER} is off, but found {len(containers)} containers: exactly one is allowed")
    port_lists = [container.get("ports") for _, container in containers]
    ports = sum(len(ports) for ports in port_lists if isinstance(ports, list))
    if ports > 1:
        faults.add(path, "more than one container port is set: only a single port is allowed across all containers")
    elif ports == 0 and len(containers) > 1:
        faults.add(path, "missing field: exactly one of several containers must have a port")
    names: set[str] = set()
    for where, container in containers:
        serving = len(containers) == 1 or bool(container.get("ports"))
        check_container(faults, where, container, volumes, serving=serving)
        name = container.get("name")
        if isinstance(name, str) and name in names:
            faults.add(f"{where}.name", f'duplicate container name "{name}"')
        names.add(name if isinstance(name, str) else "")
