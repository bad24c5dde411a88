"""A cluster that a part of Kubernetes is played on: definitions are served, Deployments run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.base.objects import CONFIG_MAP, DEPLOYMENT, Kind, Object, generation_of, key_of, version_of
from clusters.embedded.cluster import EmbeddedCluster
from serving.install.kinds import CORE_SERVICE, CRD
from serving.install.knative import NEEDED
from serving.install.waiting import WaitDeadline
from serving.makers.knative_flags import NAMESPACE
from tests.support.loops import at_work

KUBERNETES = "kube-controller-manager"
KNATIVE = "knative"


class BriskClock(SystemClock):
    """Sleeps a hundredth of what it is asked for: the players are faster than a cluster."""

    async def sleep(self, seconds: float) -> None:
        """Return sooner."""
        await asyncio.sleep(seconds / 100)


class Kubernetes:
    """Plays the controllers of a cluster while it runs."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.broken: set[str] = set()
        """Deployments that do not come up."""

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(self._follow(CRD, self._established), self._follow(DEPLOYMENT, self._status))

    async def _follow(self, kind: Kind, status: Any) -> None:
        start = (await self.cluster.list(kind)).resource_version
        for obj in (await self.cluster.list(kind)).items:
            await self._report(kind, obj, status(obj))
        async for event in self.cluster.watch(kind, start):
            if event.type in ("ADDED", "MODIFIED"):
                await self._report(kind, event.object, status(event.object))

    async def _report(self, kind: Kind, obj: Object, status: Object) -> None:
        if obj.get("status") != status:
            key = key_of(obj)
            patch = {"status": status}
            await self.cluster.patch(
                kind, key.name, patch, key.namespace, manager=KUBERNETES, type="merge", subresource="status"
            )

    def _established(self, _: Object) -> Object:
        return {"conditions": [{"type": "Established", "status": "True"}]}

    def _status(self, deployment: Object) -> Object:
        wanted = deployment["spec"].get("replicas", 1)
        up = 0 if key_of(deployment).name in self.broken else wanted
        return {
            "observedGeneration": generation_of(deployment),
            "replicas": wanted,
            "updatedReplicas": wanted,
            "availableReplicas": up,
            "conditions": [{"type": "Available", "status": "True" if up == wanted else "False"}],
        }


class Knative:
    """Puts what an installation looks at of Knative on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def come(self, kinds: tuple[Kind, ...] = NEEDED) -> None:
        """Definitions of kinds."""
        for kind in kinds:
            await self.put(CRD, "", kind.resource)

    async def configure(self, name: str, data: Mapping[str, str]) -> None:
        """A ConfigMap."""
        await self.put(CONFIG_MAP, NAMESPACE, name, data=dict(data))

    async def ingress(self, namespace: str, name: str, **more: Any) -> None:
        """The Service of an ingress."""
        spec = {"clusterIP": "198.18.128.80", "ports": [{"name": "http2", "port": 80}], **more}
        await self.put(CORE_SERVICE, namespace, name, spec=spec)

    async def put(self, kind: Kind, namespace: str, name: str, **content: Any) -> None:
        """Any object."""
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}
        await self._cluster.apply(kind, obj, manager=KNATIVE, force=True)


@pytest.fixture
async def kubernetes(cluster: EmbeddedCluster) -> AsyncIterator[Kubernetes]:
    """The cluster, its controllers at work."""
    kubernetes = Kubernetes(cluster)
    async with at_work(kubernetes.run()):
        yield kubernetes


@pytest.fixture
async def knative(cluster: EmbeddedCluster) -> Knative:
    """Knative with Kourier, some flags off."""
    knative = Knative(cluster)
    await knative.come()
    await knative.configure("config-network", {"ingress-class": "kourier.ingress.networking.knative.dev"})
    await knative.configure("config-domain", {"_example": "#", "knodel.test": ""})
    await knative.configure("config-features", {"tag-header-based-routing": "disabled"})
    for name in ("config-observability", "config-autoscaler"):
        await knative.configure(name, {"_example": "#"})
    await knative.ingress("kourier-system", "kourier")
    return knative


@pytest.fixture
def deadline() -> WaitDeadline:
    """Time enough."""
    return WaitDeadline(BriskClock(), 10.0, lambda _: None)


async def versions(cluster: Cluster, kinds: tuple[Kind, ...]) -> dict[tuple[str, str], str]:
    """Every object of the kinds with its resourceVersion."""
    return {
        (kind.kind, str(key_of(obj))): version_of(obj) for kind in kinds for obj in (await cluster.list(kind)).items
    }
