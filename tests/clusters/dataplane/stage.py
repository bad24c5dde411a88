"""A cluster with the objects around the data plane, a real Envoy, and an activator that records its targets."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusters.base.clock import SystemClock
from clusters.base.errors import NotFound
from clusters.base.objects import (
    ANNOTATION_PORTS,
    INGRESS,
    LABEL_REVISION,
    POD,
    POD_AUTOSCALER,
    SERVERLESS_SERVICE,
    Key,
    Kind,
    Object,
    annotations_of,
)
from clusters.embedded.activator.wire import ActivatorTarget
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.dataplane.controller import DataPlane, Gateway
from clusters.embedded.dataplane.routing import HoldPolicy
from clusters.gateway.token import GatewayTokens
from clusters.runtime.informer import Informers
from tests.clusters.gateway.backends import Backend
from tests.clusters.gateway.ingresses import ingress
from tests.support.loops import at_work

MANAGER = "test"
TOKENS = GatewayTokens(b"key")


@dataclass
class Activator:
    """An activator that records its targets."""

    targets: dict[Key, ActivatorTarget] = field(default_factory=dict)
    retained: list[frozenset[Key]] = field(default_factory=list)

    async def set_target(self, target: ActivatorTarget) -> None:
        self.targets[target.key] = target

    async def remove_target(self, key: Key) -> None:
        self.targets.pop(key, None)

    async def retain(self, keys: Iterable[Key]) -> None:
        self.retained.append(frozenset(keys))

    def endpoints(self, revision: str) -> list[int]:
        """Return the ports of the activator's endpoints for a revision of namespace default."""
        target = self.targets.get(Key("default", revision))
        return [] if target is None else [endpoint.port for endpoint in target.endpoints]


def hold_of(autoscaler: Object) -> HoldPolicy:
    """Return the policy in the annotation of a test's PodAutoscaler."""
    return HoldPolicy(
        **json.loads(annotations_of(autoscaler).get("hold", '{"limit": 10, "slots": 4, "timeout": 30.0}'))
    )


class Stage:
    """Create and change the objects of the data plane."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster

    async def revision(self, name: str, mode: str = "Proxy", **annotations: str) -> None:
        """Create PodAutoscaler and ServerlessService of a revision."""
        await self._create(POD_AUTOSCALER, name, {"scaleTargetRef": {}}, annotations=annotations)
        await self._create(SERVERLESS_SERVICE, name, {"mode": mode, "numActivators": 0, "objectRef": {}})

    async def mode(self, name: str, mode: str) -> None:
        """Set the mode of a ServerlessService."""
        await self.cluster.patch(SERVERLESS_SERVICE, name, {"spec": {"mode": mode}}, "default", manager=MANAGER)

    async def pod(self, name: str, revision: str, backend: Backend, *, ready: bool = True) -> Object:
        """Create a Pod of the revision whose server is `backend`."""
        ports = json.dumps({"8080": backend.address.port, "9095": 1})
        metadata = {"labels": {LABEL_REVISION: revision}, "annotations": {ANNOTATION_PORTS: ports}}
        await self._create(POD, name, {"containers": [{"name": "c", "image": "i"}]}, **metadata)
        return await self.ready(name, ready=ready)

    async def ready(self, name: str, *, ready: bool = True) -> Object:
        """Set the readiness of a Pod."""
        condition = {"type": "Ready", "status": str(ready)}
        return await self.status(POD, name, {"podIP": "127.0.0.1", "conditions": [condition]})

    async def status(self, kind: Kind, name: str, status: Object) -> Object:
        """Change the status of an object."""
        patch = {"status": status}
        return await self.cluster.patch(kind, name, patch, "default", manager=MANAGER, subresource="status")

    async def route(self, name: str, splits: Mapping[str, int], tags: Mapping[str, str] | None = None) -> Object:
        """Create or update the Ingress of a Route, and return it."""
        made = ingress(name, splits, tags)
        try:
            present = await self.cluster.get(INGRESS, name, "default")
        except NotFound:
            return await self.cluster.create(INGRESS, made, manager=MANAGER)
        patch = {"metadata": {"uid": present["metadata"]["uid"]}, "spec": made["spec"]}
        return await self.cluster.patch(INGRESS, name, patch, "default", manager=MANAGER)

    async def get(self, kind: Kind, name: str) -> Object:
        """Return an object."""
        return await self.cluster.get(kind, name, "default")

    async def conditions(self, kind: Kind, name: str) -> dict[str, str]:
        """Return type → "STATUS" or "STATUS:REASON"."""
        found = (await self.get(kind, name)).get("status", {}).get("conditions", [])
        return {one["type"]: ":".join(filter(None, (one["status"], one.get("reason", "")))) for one in found}

    async def _create(self, kind: Kind, name: str, spec: Object, **metadata: Any) -> None:
        made = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": "default", **metadata},
            "spec": spec,
        }
        await self.cluster.create(kind, made, manager=MANAGER)


@contextlib.asynccontextmanager
async def data_plane(
    cluster: EmbeddedCluster, envoy: Gateway, activator: Activator, address: Backend, *, synced: bool = True
) -> AsyncIterator[DataPlane]:
    """Run a data plane controller. Without `synced` its informers never sync."""
    informers = Informers(cluster)
    made = DataPlane(
        cluster,
        informers,
        envoy=envoy,
        activator=activator,
        activator_address=(address.address.host, address.address.port),
        read_hold_policy=hold_of,
        tokens=TOKENS,
        clock=SystemClock(),
    )
    async with at_work(made.run(), *([informers.run()] if synced else [])):
        if synced:
            await made.ready()
        yield made
