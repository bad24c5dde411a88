"""The cluster of the contract tests on a real API server: Widgets are a CRD; namespaces are created on first use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from clusters.base.api import Cluster, ObjectList
from clusters.base.errors import AlreadyExists, ClusterError, NotFound
from clusters.base.objects import NAMESPACE, Kind, Object
from clusters.kubernetes import KubernetesCluster
from tests.contract.widgets import WIDGET
from tests.support.kubernetes import KubeTarget, kubernetes_cluster
from tests.support.wait import eventually

MANAGER = "contract"
CRD = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)


@asynccontextmanager
async def contract_cluster(target: KubeTarget) -> AsyncIterator[Cluster]:
    """The cluster, which serves Widgets. The namespaces are deleted at the end."""
    async with kubernetes_cluster(target) as cluster:
        await _serve_widgets(cluster)
        provided = WithNamespaces(cluster)
        yield provided
        await provided.sweep()


class WithNamespaces:
    """A cluster that creates the namespace of an object on first use."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self._cluster = cluster
        self._made: set[str] = set()
        self._making = asyncio.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def create(self, kind: Kind, obj: Object, **options: Any) -> Object:
        """Create the namespace and the object."""
        await self._provide(obj)
        return await self._cluster.create(kind, obj, **options)

    async def create_all(
        self, kind: Kind, objects: Sequence[Object], **options: Any
    ) -> Sequence[Object | ClusterError]:
        """Create the namespaces and the objects."""
        for obj in objects:
            await self._provide(obj)
        return await self._cluster.create_all(kind, objects, **options)

    async def apply(self, kind: Kind, obj: Object, **options: Any) -> Object:
        """Create the namespace and apply the object."""
        await self._provide(obj)
        return await self._cluster.apply(kind, obj, **options)

    async def sweep(self) -> None:
        """Delete the namespaces, and remove the finalizers of Widgets."""
        for name in self._made:
            for widget in (await self._widgets(name)).items:
                if widget["metadata"].get("finalizers"):
                    patch = {"metadata": {"finalizers": None}}
                    with suppress(NotFound):
                        await self._cluster.patch(WIDGET, widget["metadata"]["name"], patch, name, manager=MANAGER)
            await self._cluster.delete(NAMESPACE, name)

    async def _widgets(self, namespace: str) -> ObjectList:
        return await self._cluster.list(WIDGET, namespace)

    async def _provide(self, obj: Object) -> None:
        name = obj["metadata"]["namespace"]
        async with self._making:
            if name not in self._made:
                with suppress(AlreadyExists):
                    await self._cluster.create(NAMESPACE, {"metadata": {"name": name}}, manager=MANAGER)
                self._made.add(name)


async def _serve_widgets(cluster: KubernetesCluster) -> None:
    await cluster.apply(CRD, _definition(), manager=MANAGER, force=True)

    async def served() -> bool:
        with suppress(NotFound):
            await cluster.list(WIDGET, "default")
            return True
        return False

    await eventually(served)


def _definition() -> Object:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "metadata": {"name": WIDGET.resource},
        "spec": {
            "group": WIDGET.group,
            "scope": "Namespaced",
            "names": {"kind": WIDGET.kind, "plural": WIDGET.plural, "listKind": "WidgetList", "singular": "widget"},
            "versions": [
                {
                    "name": WIDGET.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}},
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                    },
                }
            ],
        },
    }
