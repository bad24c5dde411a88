"""CoreDNS for the names of the cluster, and for no others: nothing of the testbed looks outside."""

from __future__ import annotations

from typing import Any

from tests.testbed import images
from tests.testbed.addresses import CLUSTER_DOMAIN, DNS_ADDRESS
from tests.testbed.manifests import PROBE_PERIOD, REQUESTS
from tests.testbed.oci import NOBODY
from tests.testbed.upstream import Document

NAMESPACE = "kube-system"
NAME = "coredns"
SERVICE = "kube-dns"
"""The name by which Kubernetes knows its DNS Service, whatever serves it."""
LABELS = {"k8s-app": "kube-dns"}
PORT = 53
HEALTH_PORT = 8080
READY_PORT = 8181
USER = int(NOBODY.partition(":")[0])
COREFILE = f"""\
.:{PORT} {{
    errors
    health :{HEALTH_PORT}
    ready :{READY_PORT}
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
    }}
}}
"""
"""No cache: a name that is asked for before its Service exists would stay unknown for seconds."""


def documents() -> list[Document]:
    """Every object of CoreDNS."""
    return [
        _object("v1", "ServiceAccount", NAME),
        _object("rbac.authorization.k8s.io/v1", "ClusterRole", f"system:{NAME}", namespace="", rules=_rules()),
        _binding(),
        _object("v1", "ConfigMap", NAME, data={"Corefile": COREFILE}),
        _service(),
        _deployment(),
    ]


def _object(version: str, kind: str, name: str, namespace: str = NAMESPACE, **more: Any) -> Document:
    metadata = {"name": name, "labels": dict(LABELS)} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def _rules() -> list[Document]:
    reads = ["list", "watch"]
    return [
        {"apiGroups": [""], "resources": ["namespaces", "pods", "services"], "verbs": reads},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": reads},
    ]


def _binding() -> Document:
    group = "rbac.authorization.k8s.io"
    return _object(
        f"{group}/v1",
        "ClusterRoleBinding",
        f"system:{NAME}",
        namespace="",
        roleRef={"apiGroup": group, "kind": "ClusterRole", "name": f"system:{NAME}"},
        subjects=[{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    )


def _service() -> Document:
    ports = [
        {"name": f"dns-{how.lower()}", "port": PORT, "targetPort": PORT, "protocol": how} for how in ("UDP", "TCP")
    ]
    return _object("v1", "Service", SERVICE, spec={"clusterIP": DNS_ADDRESS, "selector": dict(LABELS), "ports": ports})


def _deployment() -> Document:
    pod = {
        "serviceAccountName": NAME,
        "dnsPolicy": "Default",
        "containers": [_container()],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    template = {"metadata": {"labels": dict(LABELS)}, "spec": pod}
    return _object(
        "apps/v1",
        "Deployment",
        NAME,
        spec={"replicas": 1, "selector": {"matchLabels": dict(LABELS)}, "template": template},
    )


def _container() -> Document:
    return {
        "name": NAME,
        "image": images.reference(images.module("coredns"), "coredns"),
        "args": ["-conf", "/etc/coredns/Corefile"],
        "resources": {"requests": dict(REQUESTS)},
        "ports": [{"name": f"dns-{how.lower()}", "containerPort": PORT, "protocol": how} for how in ("UDP", "TCP")],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": READY_PORT}, "periodSeconds": PROBE_PERIOD},
        "livenessProbe": {"httpGet": {"path": "/health", "port": HEALTH_PORT}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
