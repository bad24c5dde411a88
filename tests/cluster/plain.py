"""Plain Knative Services of one autoscaler class or another, with Knative's own annotations and a tiny container."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autoscaler.types import CLASS
from clusters.base.api import Cluster
from clusters.base.objects import (
    ANNOTATION_CLASS,
    DEPLOYMENT,
    LABEL_REVISION,
    POD,
    POD_AUTOSCALER,
    REVISION,
    SERVERLESS_SERVICE,
    SERVICE,
    Key,
    Kind,
    Object,
    condition_of,
    generation_of,
    is_deleting,
    is_true,
    labels_of,
    name_of,
)
from clusters.runtime.informer import Informers
from tests.support.kourier import Kourier
from tests.support.wait import eventually

MANAGER = "tests"
NAME = "app"
FIRST = f"{NAME}-00001"
WITHIN = 120.0  # s for a step
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", status=False)
LABEL_OF_SLICE = "kubernetes.io/service-name"
PROGRAM = (Path(__file__).parent / "sleeper.py").read_text()
NOTHING: Mapping[str, Any] = MappingProxyType({})
PROGRESS_DEADLINE = "serving.knative.dev/progress-deadline"


KINDS = (SERVICE, REVISION, POD_AUTOSCALER, SERVERLESS_SERVICE, DEPLOYMENT, POD, ENDPOINT_SLICE)


@dataclass(frozen=True, slots=True)
class Moment:
    """A change that was seen: when (monotonic seconds), and the object after it, None when it went."""

    at: float
    kind: Kind
    name: str
    after: Object | None


class Plain:
    """A namespace, and what is made, asked and seen in it. What is not named is of the Service `app`, revision 1."""

    def __init__(self, cluster: Cluster, namespace: str, kourier: Kourier, image: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.kourier = kourier
        self.image = image
        self.moments: list[Moment] = []
        self._seen = Informers(cluster, namespace=namespace)
        for kind in KINDS:
            self._seen[kind].subscribe(partial(self._note, kind))

    def _note(self, kind: Kind, before: Object | None, after: Object | None) -> None:
        self.moments.append(Moment(time.monotonic(), kind, name_of(after or before or {}), after))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[Plain]:
        """Its memory follows the cluster for as long as the block runs."""
        task = asyncio.create_task(self._seen.run())
        await self._seen.synced()
        try:
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def create(
        self,
        name: str = NAME,
        scaling: Mapping[str, str] = NOTHING,
        *,
        autoscaler_class: str = CLASS,
        env: Mapping[str, str] = NOTHING,
        container: Mapping[str, Any] = NOTHING,
        deadline: str = "",
    ) -> None:
        """A Service. `scaling`: `min-scale` stands for `autoscaling.knative.dev/min-scale`.

        `container` is laid over the sleeper's; `deadline` is the revision's progress deadline.
        """
        annotations = {f"autoscaling.knative.dev/{key}": value for key, value in scaling.items()}
        annotations[ANNOTATION_CLASS] = autoscaler_class
        if deadline:
            annotations[PROGRESS_DEADLINE] = deadline
        made = {**make_container(self.image, env), **container}
        template = {"metadata": {"annotations": annotations}, "spec": {"containers": [made]}}
        metadata = {"name": name, "namespace": self.namespace}
        service = {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": metadata}
        await self.cluster.create(SERVICE, {**service, "spec": {"template": template}}, manager=MANAGER)

    async def change(self, patch: Object, name: str = NAME) -> Object:
        """Merge `patch` into the Service."""
        return await self.cluster.patch(SERVICE, name, patch, self.namespace, manager=MANAGER)

    async def delete(self, name: str = NAME) -> None:
        """Delete the Service; return once nothing is left of it but Pods that end."""
        await self.cluster.delete(SERVICE, name, self.namespace)
        await self.until(lambda: not self.leftovers(name))

    def get(self, kind: Kind, name: str = FIRST) -> Object:
        """An object as last seen; raises AssertionError where there is none."""
        found = self._seen[kind].get(name, self.namespace)
        assert found is not None, f"there is no {kind} {name}"
        return found

    def history(self, kind: Kind, name: str = FIRST) -> list[Object]:
        """All that was seen of an object, oldest first."""
        return [one.after for one in self.moments if (one.kind, one.name) == (kind, name) and one.after is not None]

    async def until(self, look: Callable[[], Any], within: float = WITHIN) -> float:
        """Wait until `look` is true of what was seen; the seconds that it took."""
        began = time.monotonic()
        await eventually(look, within)
        return time.monotonic() - began

    async def ready(self, name: str = NAME) -> float:
        """Wait until the Service is Ready at its present generation; the seconds that it took."""
        began = time.monotonic()
        await self.says(SERVICE, name, "Ready", "True")
        return time.monotonic() - began

    async def tells(self, kind: Kind, name: str, condition: str, text: str) -> None:
        """Wait until the message of a condition has this text in it."""

        def look() -> bool:
            said = condition_of(self.get(kind, name), condition) or {}
            assert text in said.get("message", ""), f"{name}: {said}"
            return True

        await self.until(look)

    async def says(
        self, kind: Kind, name: str, condition: str, status: str, reason: str | None = None, within: float = WITHIN
    ) -> Object:
        """Wait until a condition is so, at the object's present generation; the condition."""

        def look() -> Object:
            found = self.get(kind, name)
            said = condition_of(found, condition) or {}
            seen = (found.get("status") or {}).get("observedGeneration")
            assert seen == generation_of(found), f"{name}: {seen} of {generation_of(found)} observed"
            assert said.get("status") == status and reason in (None, said.get("reason")), f"{name}: {said}"
            return said

        return await eventually(look, within)

    def asked(self, revision: str = FIRST) -> int:
        """Replicas that the Deployment is asked for."""
        return int(self.get(DEPLOYMENT, f"{revision}-deployment")["spec"]["replicas"])

    async def scaled(self, replicas: int, revision: str = FIRST, within: float = WITHIN) -> float:
        """Wait until the Deployment is asked for so many; the seconds that it took."""

        def look() -> bool:
            assert self.asked(revision) == replicas, f"{revision}: {self.asked(revision)} replicas, not {replicas}"
            return True

        return await self.until(look, within)

    async def at_zero(self, revision: str = FIRST) -> None:
        """Wait until no replica is asked for, and the activator knows of none: one that ends answers for a moment."""
        await self.scaled(0, revision)
        await self.says(SERVERLESS_SERVICE, revision, "EndpointsPopulated", "Unknown", "NoHealthyBackends")

    def most_asked(self, revision: str = FIRST) -> int:
        """The most replicas that the Deployment was ever asked for."""
        return max(replicas for _, replicas in self._scales(revision))

    def least_asked(self, revision: str = FIRST) -> int:
        """… and the least."""
        return min(replicas for _, replicas in self._scales(revision))

    def when_asked(self, replicas: int, revision: str = FIRST) -> float:
        """When it was first asked for so many (monotonic seconds)."""
        return next(at for at, asked in self._scales(revision) if asked == replicas)

    def _scales(self, revision: str) -> list[tuple[float, int]]:
        seen = [one for one in self.moments if (one.kind, one.name) == (DEPLOYMENT, f"{revision}-deployment")]
        return [(one.at, int(one.after["spec"]["replicas"])) for one in seen if one.after is not None]

    def most_ready(self, revision: str = FIRST) -> int:
        """The most ready replicas that the Deployment ever had."""
        seen = self.history(DEPLOYMENT, f"{revision}-deployment")
        return max(int((one.get("status") or {}).get("readyReplicas") or 0) for one in seen)

    def stood(self, kind: Kind, at: float, name: str = FIRST) -> Object:
        """An object as it was at a moment."""
        seen = (one for one in reversed(self.moments) if (one.kind, one.name) == (kind, name) and one.at <= at)
        return next(one.after for one in seen if one.after is not None)

    def forget(self) -> None:
        """What was seen so far is of no interest any more."""
        self.moments.clear()

    def pods(self, revision: str = FIRST) -> list[Object]:
        """Its Pods that are not ending."""
        return [pod for pod in self._seen[POD] if labels_of(pod).get(LABEL_REVISION) == revision and _lives(pod)]

    async def running(self, replicas: int, revision: str = FIRST, within: float = WITHIN) -> float:
        """Wait until so many Pods are ready; the seconds that it took."""

        def look() -> bool:
            ready = len(self.addresses(revision))
            assert ready == replicas, f"{revision}: {ready} ready Pods, not {replicas}"
            return True

        return await self.until(look, within)

    def addresses(self, revision: str = FIRST) -> set[str]:
        """The IPs of its ready Pods."""
        return {pod["status"]["podIP"] for pod in self.pods(revision) if is_true(pod, "Ready")}

    def mode(self, revision: str = FIRST) -> str:
        """Of the ServerlessService."""
        return str(self.get(SERVERLESS_SERVICE, revision)["spec"]["mode"])

    def was_served(self, revision: str = FIRST) -> bool:
        """Whether requests went straight to its replicas at some time."""
        return any(one["spec"]["mode"] == "Serve" for one in self.history(SERVERLESS_SERVICE, revision))

    def backends(self, revision: str = FIRST) -> set[str]:
        """The IPs behind the public Service."""
        slices = [one for one in self._seen[ENDPOINT_SLICE] if labels_of(one).get(LABEL_OF_SLICE) == revision]
        return {ip for one in slices for end in one.get("endpoints") or () for ip in end["addresses"]}

    def request(self, name: str = NAME, ms: int = 0) -> tuple[str, Mapping[str, str]]:
        """URL and headers of a request that takes so long."""
        return f"{self.kourier.url}/?ms={ms}", {"Host": self.kourier.host(Key(self.namespace, name))}

    def leftovers(self, name: str = NAME) -> list[str]:
        """What is there of the Service, apart from Pods that are ending."""
        found = [(kind, one) for kind in KINDS for one in self._seen[kind]]
        return [f"{kind} {name_of(one)}" for kind, one in found if _lives(one) and _belongs(name_of(one), name)]


def _lives(obj: Object) -> bool:
    return not is_deleting(obj) and (obj.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _belongs(name: str, service: str) -> bool:
    return name == service or name.startswith(f"{service}-0")


def make_container(image: str, env: Mapping[str, str]) -> Object:
    """The sleeper."""
    return {
        "image": image,
        "command": ["python", "-c", PROGRAM],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "readinessProbe": {"httpGet": {"path": "/healthz"}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
