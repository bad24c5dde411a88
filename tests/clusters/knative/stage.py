"""The controllers of Knative Serving on a real embedded cluster, with the other components simulated.

The kubelet, the Deployment controller, the autoscaler and the data plane are simulated by writing their statuses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from clusters.base.errors import NotFound
from clusters.base.objects import (
    CONFIGURATION,
    DEPLOYMENT,
    INGRESS,
    POD,
    POD_AUTOSCALER,
    REVISION,
    ROUTE,
    SERVICE,
    Kind,
    Object,
    condition_of,
    generation_of,
    version_of,
)
from clusters.embedded.cluster import EmbeddedCluster
from tests.support.wait import eventually

NAMESPACE = "default"
CLASS = "gpu.autoscaling.knodel.dev"
KNATIVE_KINDS = (SERVICE, CONFIGURATION, REVISION, ROUTE, DEPLOYMENT, POD_AUTOSCALER, INGRESS)

WAITING = "Unknown"
PATIENCE = 5.0  # s, for what takes milliseconds
QUIET_LOOKS = 8  # looks in a row that find nothing written


def template(version: str = "1", **annotations: str) -> Object:
    """Return a revision template whose spec differs by `version`."""
    return {
        "metadata": {
            "annotations": {"autoscaling.knative.dev/class": CLASS, **annotations},
            "labels": {"knodel.dev/generation": version},
        },
        "spec": {
            "containerConcurrency": 0,
            "timeoutSeconds": 60,
            "containers": [
                {
                    "image": "dev.local/server:1",
                    "args": ["--version", version],
                    "readinessProbe": {"httpGet": {"path": "/v2/health/ready"}, "periodSeconds": 1},
                }
            ],
        },
    }


def service(name: str = "magika", version: str = "1", **spec: Any) -> Object:
    """Return a Service."""
    return {
        "apiVersion": SERVICE.api_version,
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"template": template(version), **spec},
    }


def configuration(name: str, version: str = "1") -> Object:
    """Return a Configuration without a Service."""
    return {
        "apiVersion": CONFIGURATION.api_version,
        "kind": "Configuration",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"template": template(version)},
    }


def route(name: str, traffic: list[Object]) -> Object:
    """Return a Route without a Service."""
    return {
        "apiVersion": ROUTE.api_version,
        "kind": "Route",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"traffic": traffic},
    }


def condition(status: str, reason: str = "", message: str = "") -> Object:
    """Return a condition without its type."""
    return {"status": status, **({"reason": reason} if reason else {}), **({"message": message} if message else {})}


def conditions(**named: Object) -> list[Object]:
    """Return a list of conditions."""
    return [{"type": kind, **value} for kind, value in named.items()]


async def until(predicate: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the asynchronous predicate holds."""
    await eventually(predicate, PATIENCE)


class Stage:
    """What a test does and sees."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster

    async def apply(self, obj: Object) -> Object:
        """What a user, or the serving reconciler, applies."""
        kinds = {kind.kind: kind for kind in KNATIVE_KINDS}
        return await self.cluster.apply(kinds[obj["kind"]], obj, manager="test", force=True)

    async def get(self, kind: Kind, name: str) -> Object:
        """The stored object."""
        return await self.cluster.get(kind, name, NAMESPACE)

    async def find(self, kind: Kind, name: str) -> Object | None:
        """The stored object, or None."""
        try:
            return await self.get(kind, name)
        except NotFound:
            return None

    async def appears(self, kind: Kind, name: str) -> Object:
        """The object, as soon as it is there."""
        return await self.becomes(kind, name, lambda _: True)

    async def becomes(self, kind: Kind, name: str, check: Callable[[Object], bool]) -> Object:
        """The object, as soon as `check` holds."""
        obj: Object = {}

        async def holds() -> bool:
            nonlocal obj
            obj = await self.find(kind, name) or {}
            assert obj, f"{kind} {name} is not there"
            assert check(obj), f"{kind} {name} is not yet so: {obj.get('status')}"
            return True

        await until(holds)
        return obj

    async def reports(
        self, kind: Kind, name: str, status: str, reason: str = "", message: str = "", type: str = "Ready"
    ) -> Object:
        """The object, as soon as it reports this condition for its present generation."""

        def check(obj: Object) -> bool:
            found = condition_of(obj, type) or {}
            said = (found.get("status"), found.get("reason", ""), found.get("message", ""))
            seen = (obj.get("status") or {}).get("observedGeneration") == generation_of(obj)
            return seen and said == (status, reason, message)

        return await self.becomes(kind, name, check)

    async def quiet(self) -> str:
        """Wait until nothing is written any more; returns the cluster's version then."""
        last, still = "", 0

        async def settled() -> bool:
            nonlocal last, still
            present = (await self.cluster.list(SERVICE)).resource_version
            still = still + 1 if present == last else 0
            last = present
            return still >= QUIET_LOOKS

        await until(settled)
        return last

    async def versions(self) -> dict[str, str]:
        """The resourceVersion of everything the stand-in writes."""
        found: dict[str, str] = {}
        for kind in KNATIVE_KINDS:
            for obj in (await self.cluster.list(kind)).items:
                found[f"{kind} {obj['metadata']['name']}"] = version_of(obj)
        return found

    # The parts played by hand.

    async def deployment_reports(self, revision: str, ready: int, **extra: Any) -> None:
        """The Deployment controller: so many of its replicas are ready, and it progresses."""
        await self.appears(DEPLOYMENT, f"{revision}-deployment")
        status = {
            "replicas": 1,
            "readyReplicas": ready,
            "availableReplicas": ready,
            "conditions": conditions(Progressing=condition("True")),
            **extra,
        }
        await self._report(DEPLOYMENT, f"{revision}-deployment", status)

    async def pod_reports(self, revision: str, status: Object, name: str = "") -> None:
        """The kubelet: a Pod of the Revision has this status."""
        deployment = await self.appears(DEPLOYMENT, f"{revision}-deployment")
        template = deployment["spec"]["template"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name or f"{revision}-pod",
                "namespace": NAMESPACE,
                "labels": template["metadata"]["labels"],
            },
            "spec": template["spec"],
        }
        if await self.find(POD, pod["metadata"]["name"]) is None:
            await self.cluster.create(POD, pod, manager="kubelet")
        await self._report(POD, pod["metadata"]["name"], status)

    async def container_ends(self, revision: str, exit_code: int, message: str) -> None:
        """The kubelet: the container ended and waits for its restart."""
        terminated = {"exitCode": exit_code, "reason": "Error", "message": message}
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}
        container = {"name": "user-container", "state": state, "lastState": {"terminated": terminated}}
        await self.pod_reports(revision, {"phase": "Running", "containerStatuses": [container]})

    async def autoscaler_reports(
        self, revision: str, ready: Object, *, initialized: bool = True, scale: int = 1
    ) -> None:
        """The autoscaler: the PodAutoscaler's conditions and scale."""
        autoscaler = await self.appears(POD_AUTOSCALER, revision)
        status = {
            "observedGeneration": generation_of(autoscaler),
            "serviceName": revision,
            "metricsServiceName": f"{revision}-private",
            "actualScale": scale,
            "desiredScale": scale,
            "conditions": conditions(
                Active=ready,
                Ready=ready,
                ScaleTargetInitialized=condition("True" if initialized else "Unknown"),
            ),
        }
        await self._report(POD_AUTOSCALER, revision, status)

    async def revision_comes_up(self, revision: str) -> None:
        """Deployment and autoscaler say that all is well."""
        await self.deployment_reports(revision, 1)
        await self.autoscaler_reports(revision, condition("True"))
        await self.reports(REVISION, revision, "True")

    async def ingress_is_ready(self, name: str) -> Object:
        """The data plane: Envoy has seen the present Ingress."""
        ingress = await self.appears(INGRESS, name)
        status = {"observedGeneration": generation_of(ingress), "conditions": conditions(Ready=condition("True"))}
        return await self._report(INGRESS, name, status)

    async def serves(self, name: str = "magika", number: int = 1) -> None:
        """A Service's version is up and all traffic is on it."""
        await self.revision_comes_up(f"{name}-{number:05d}")
        await self.becomes(
            INGRESS, name, lambda ingress: splits(ingress, f"{name}.default.localhost") == {f"{name}-{number:05d}": 100}
        )
        await self.ingress_is_ready(name)
        await self.reports(SERVICE, name, "True")

    async def _report(self, kind: Kind, name: str, status: Object) -> Object:
        return await self.cluster.patch(
            kind, name, {"status": status}, NAMESPACE, manager="player", subresource="status"
        )


def splits(ingress: Object, host: str, tag: str = "") -> dict[str, int]:
    """Return the split of an Ingress for requests to the host, with a tag header if given: Revision → percent."""
    for rule in ingress["spec"]["rules"]:
        if host not in rule["hosts"]:
            continue
        for path in rule["http"]["paths"]:
            wanted = {"Knative-Serving-Tag": {"exact": tag}} if tag else None
            if path.get("headers") == wanted:
                return {split["serviceName"]: split["percent"] for split in path["splits"]}
    return {}
