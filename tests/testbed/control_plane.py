"""The control plane as processes of the host: etcd, kube-apiserver, kube-controller-manager, kube-scheduler."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.testbed import files, health, kubeconfigs, pki
from tests.testbed.addresses import (
    API_PORT,
    CLUSTER_DOMAIN,
    CONTROLLER_MANAGER_PORT,
    ETCD_PEER_PORT,
    ETCD_PORT,
    NODE_ADDRESS,
    SCHEDULER_PORT,
    SERVICE_RANGE,
)
from tests.testbed.paths import Paths
from tests.testbed.processes import Component

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTROLLER_MANAGER: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
FEATURE_GATES: Final = ("DRAExtendedResource",)
"""Off by default in 1.35: Pods get devices of a DeviceClass by the name of a resource."""
_LOOPBACK: Final = "127.0.0.1"
_AUDIT_MEGABYTES: Final = 1024  # a test reads this one file: some hours of the busiest tests, 0.6 GB an hour
_CLIENT_QPS: Final = 200  # defaults 20 and 50: programs of a one-machine lab need not spare its API server
_CLIENT_BURST: Final = 400

# Who did what to which object, for every request; the start of a request says nothing that its end does not.
AUDIT_POLICY: Final[dict[str, Any]] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def write_config(paths: Paths) -> None:
    """The files that the control plane reads beside its certificates."""
    files.write_document(_audit_policy(paths), AUDIT_POLICY)


def etcd(paths: Paths) -> Component:
    """The store; it does not wait for the disk, as nothing here outlives the machine."""
    client, peer = f"http://{_LOOPBACK}:{ETCD_PORT}", f"http://{_LOOPBACK}:{ETCD_PEER_PORT}"
    flags = {
        "name": "testbed",
        "data-dir": paths.etcd,
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"testbed={peer}",
        "unsafe-no-fsync": "true",
        "log-level": "warn",
    }
    return _component(paths, ETCD, flags, functools.partial(health.answers, _LOOPBACK, ETCD_PORT, "/health"))


def api_server(paths: Paths) -> Component:
    """The API server on the node's address, with an audit log of every request."""
    folder = paths.pki
    flags = {
        "etcd-servers": f"http://{_LOOPBACK}:{ETCD_PORT}",
        "bind-address": NODE_ADDRESS,
        "advertise-address": NODE_ADDRESS,
        "secure-port": API_PORT,
        "service-cluster-ip-range": SERVICE_RANGE,
        "authorization-mode": "Node,RBAC",
        # Pods that request a resource tolerate a taint of its name: so other Pods stay off the nodes of such tests.
        "enable-admission-plugins": "NodeRestriction,ExtendedResourceToleration",
        "feature-gates": _gates(),
        "allow-privileged": "true",
        "client-ca-file": pki.certificate(folder, pki.CA),
        "tls-cert-file": pki.certificate(folder, pki.API_SERVER),
        "tls-private-key-file": pki.key(folder, pki.API_SERVER),
        "kubelet-certificate-authority": pki.certificate(folder, pki.CA),
        "kubelet-client-certificate": pki.certificate(folder, pki.API_SERVER_TO_KUBELET),
        "kubelet-client-key": pki.key(folder, pki.API_SERVER_TO_KUBELET),
        "kubelet-preferred-address-types": "InternalIP",
        "service-account-issuer": f"https://kubernetes.default.svc.{CLUSTER_DOMAIN}",
        "service-account-key-file": pki.key(folder, pki.SERVICE_ACCOUNT),
        "service-account-signing-key-file": pki.key(folder, pki.SERVICE_ACCOUNT),
        "audit-log-path": paths.audit_log,
        "audit-log-maxsize": _AUDIT_MEGABYTES,
        "audit-log-maxbackup": 1,  # a testbed that stays up for days does not fill the disk
        "audit-policy-file": _audit_policy(paths),
    }
    ready = functools.partial(health.answers_safely, NODE_ADDRESS, API_PORT, "/readyz", pki.certificate(folder, pki.CA))
    return _component(paths, API_SERVER, flags, ready, (_audit_policy(paths),))


def controller_manager(paths: Paths) -> Component:
    """Kubernetes' own controllers; the one node's pod addresses are given by its network configuration."""
    flags = _client_flags(paths, CONTROLLER_MANAGER) | {
        "use-service-account-credentials": "true",
        "root-ca-file": pki.certificate(paths.pki, pki.CA),
        "service-account-private-key-file": pki.key(paths.pki, pki.SERVICE_ACCOUNT),
        "kube-api-qps": _CLIENT_QPS,
        "kube-api-burst": _CLIENT_BURST,
        "feature-gates": _gates(),
    }
    ready = functools.partial(health.answers_safely, _LOOPBACK, CONTROLLER_MANAGER_PORT, "/healthz")
    return _component(paths, CONTROLLER_MANAGER, flags, ready)


def scheduler(paths: Paths) -> Component:
    """The scheduler with its default profile."""
    ready = functools.partial(health.answers_safely, _LOOPBACK, SCHEDULER_PORT, "/healthz")
    flags = _client_flags(paths, SCHEDULER) | {
        "feature-gates": _gates(),
        "kube-api-qps": _CLIENT_QPS,
        "kube-api-burst": _CLIENT_BURST,
    }
    return _component(paths, SCHEDULER, flags, ready)


def _gates() -> str:
    return ",".join(f"{name}=true" for name in FEATURE_GATES)


def _client_flags(paths: Paths, name: str) -> dict[str, Any]:
    own = kubeconfigs.of(paths, name)
    return {
        "kubeconfig": own,
        "authentication-kubeconfig": own,
        "authorization-kubeconfig": own,
        "bind-address": _LOOPBACK,
        "leader-elect": "false",  # there is one of each
    }


def _component(
    paths: Paths, name: str, flags: dict[str, Any], ready: Callable[[], bool], files: tuple[Path, ...] = ()
) -> Component:
    words = [f"--{flag}={value}" for flag, value in flags.items()]
    return Component(name, (str(_binary(paths, name)), *words), ready, files)


def _binary(paths: Paths, name: str) -> Path:
    return (paths.binaries / name).resolve()  # the link's target bears the version: a new one is started anew


def _audit_policy(paths: Paths) -> Path:
    return paths.config / "audit-policy.json"
