"""The real cluster that `--cluster kubernetes` means: `--kubeconfig`, else KUBECONFIG, else the testbed's."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

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
