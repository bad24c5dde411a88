"""The real cluster that `--cluster kubernetes` means: `--kubeconfig`, else KUBECONFIG, else the testbed's."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.base.api import Cluster
from clusters.base.objects import CONFIG_MAP
from clusters.kubernetes import KubernetesCluster
from clusters.runtime.manager.options import SYSTEM_NAMESPACE
from serving.types.settings.settings import Settings, settings_from_text
from tests.testbed.paths import standard

KNATIVE_CLASS = "kpa.autoscaling.knative.dev"
"""Knative's own autoscaler class, for plain Knative objects."""


@dataclass(frozen=True, slots=True)
class KubeTarget:
    """A context of a kubeconfig, the API server's URL in it, and the audit log when the cluster is the testbed."""

    kubeconfig: Path
    context: str
    server: str
    audit_log: Path | None


def kube_target(config: pytest.Config) -> KubeTarget:
    """What the options of pytest name."""
    return find_target(config.getoption("--kubeconfig"), config.getoption("--kube-context"))


def find_target(kubeconfig: str = "", kube_context: str = "") -> KubeTarget:
    """The cluster that `kubeconfig` and `kube_context` name, where they are not empty."""
    testbed = standard()
    given = kubeconfig or os.environ.get("KUBECONFIG")
    path = Path(given) if given else testbed.kubeconfig
    content = yaml.safe_load(path.read_text())
    context = kube_context or content["current-context"]
    cluster = next(one["context"]["cluster"] for one in content["contexts"] if one["name"] == context)
    server = next(one["cluster"]["server"] for one in content["clusters"] if one["name"] == cluster)
    log = testbed.audit_log
    return KubeTarget(path, context, server, log if path == testbed.kubeconfig and log.exists() else None)


@asynccontextmanager
async def kubernetes_cluster(target: KubeTarget) -> AsyncIterator[KubernetesCluster]:
    """A connection to it."""
    async with KubernetesCluster.connect(target.context, target.kubeconfig) as cluster:
        yield cluster


async def installed_settings(cluster: Cluster) -> Settings:
    """The settings of the Knodel that is installed there. Raises NotFound where none is."""
    found = await cluster.get(CONFIG_MAP, "knodel-config", SYSTEM_NAMESPACE)
    return settings_from_text(found["data"]["config.yaml"], "ConfigMap knodel-config")


@contextmanager
def account_token(
    target: KubeTarget, namespace: str, name: str, role: str, *, everywhere: bool = False
) -> Iterator[str]:
    """The token of a new ServiceAccount with a ClusterRole: in its namespace, or everywhere."""
    from kubernetes import client, config

    with config.new_client_from_config(str(target.kubeconfig), target.context) as api:  # type: ignore[no-untyped-call]
        core, rbac = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api)
        core.create_namespaced_service_account(
            namespace, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name=name))
        )
        binding_name = f"{namespace}-{name}"
        about: dict[str, Any] = {
            "metadata": client.V1ObjectMeta(name=binding_name),
            "subjects": [client.RbacV1Subject(kind="ServiceAccount", name=name, namespace=namespace)],
            "role_ref": client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name=role),
        }
        if everywhere:
            rbac.create_cluster_role_binding(client.V1ClusterRoleBinding(**about))
        else:
            rbac.create_namespaced_role_binding(namespace, client.V1RoleBinding(**about))
        asked = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[]))
        answered = core.create_namespaced_service_account_token(name, namespace, asked).status
        try:
            yield str(answered.token) if answered else ""
        finally:
            if everywhere:
                rbac.delete_cluster_role_binding(binding_name)
            core.delete_namespaced_service_account(name, namespace)
