"""An autoscaler over a real embedded cluster; the test plays the parts of Knative, the kubelet and the data plane."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from autoscaler.config import AutoscalerSettings
from autoscaler.controller import Autoscaler
from autoscaler.gpu.sharing import GpuSharing
from autoscaler.metrics.digest_page import LoadedDigest
from autoscaler.metrics.source import NoSample
from autoscaler.metrics.stat import AdapterReport, Sample, Tokens
from autoscaler.types import CLASS, DECISIONS_ANNOTATION, POLICY_ANNOTATION, Policy, read_entries
from autoscaler.warmpool.claims.caller import HttpLoadCaller
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import NotFound
from clusters.base.objects import (
    ANNOTATION_CLASS,
    DEPLOYMENT,
    LABEL_REVISION,
    POD,
    POD_AUTOSCALER,
    REVISION,
    SERVERLESS_SERVICE,
    Key,
    Object,
    condition_of,
    generation_of,
    owner_reference,
)
from clusters.net.endpoints import Endpoint
from clusters.runtime.informer import Informers
from tests.support.clock import SteppedClock
from tests.support.loops import at_work
from tests.support.wait import eventually

TEST = "test"
TURNS = 30  # of the event loop: more than a tick over replicas that answer at once takes
REVISION_NAME = "magika-00001"
KEY = Key("default", REVISION_NAME)
DEPLOYMENT_NAME = f"{REVISION_NAME}-deployment"


@dataclasses.dataclass(frozen=True)
class Waiting:
    """Requests at the activator."""

    queued: int = 0
    active: int = 0


class Activator:
    """An activator whose requests the test sets."""

    def __init__(self) -> None:
        self.answers = True
        self._loads: dict[Key, Waiting] = {}
        self._callbacks: list[Callable[[Key], None]] = []

    def load(self, key: Key) -> Waiting:
        return self._loads.get(key, Waiting())

    def subscribe(self, callback: Callable[[Key], None]) -> None:
        self._callbacks.append(callback)

    async def refresh(self) -> bool:
        return self.answers

    def holds(self, queued: int = 0, active: int = 0, key: Key = KEY) -> None:
        before = self.load(key)
        self._loads[key] = Waiting(queued, active)
        if bool(before.queued) != bool(queued):
            for callback in self._callbacks:
                callback(key)


class Replicas:
    """A MetricSource whose replicas report what the test sets: a constant number of slots in use, or no answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._totals: dict[str, tuple[float, float, float]] = {}  # pod → at, busy seconds, slots in use since then
        self.requests: dict[str, float] = {}
        self.silent: set[str] = set()
        self.words: dict[str, str] = {}  # pod → how far its start is
        self.format = self.digest = ""
        self.digests: dict[str, str] = {}  # pod → what it serves, where that is not `digest`
        self.loads: dict[str, str] = {}  # pod that starts → digest of its files
        self.confirmed: set[str] = set()
        self.tokens: dict[str, Tokens] = {}
        self.adapters: dict[str, AdapterReport] = {}
        self.asked = 0

    def work(self, pod: str, slots: float) -> None:
        """Set the replica's slots in use from now on."""
        at, busy, used = self._totals.get(pod, (self._clock.monotonic(), 0.0, 0.0))
        now = self._clock.monotonic()
        self._totals[pod] = (now, busy + used * (now - at), slots)
        if slots:
            self.serve(pod)

    def serve(self, pod: str, requests: int = 1) -> None:
        """Record answered requests, each without duration."""
        self.requests[pod] = self.requests.get(pod, 0.0) + requests

    async def sample(self, endpoint: Endpoint) -> Sample:
        self.asked += 1
        pod = endpoint.pod.partition("/")[2]
        if pod in self.silent:
            raise NoSample(f"{pod} is silent")
        now = self._clock.monotonic()
        at, busy, used = self._totals.get(pod, (now, 0.0, 0.0))
        requests = self.requests.get(pod, 0.0)
        digest = self.digests.get(pod, self.digest)
        tokens, adapters = self.tokens.get(pod), self.adapters.get(pod)
        done = busy + used * (now - at)
        return Sample(
            now, done, requests, used, 0.0, format=self.format, digest=digest, tokens=tokens, adapters=adapters
        )

    async def progress(self, endpoint: Endpoint) -> str:
        pod = endpoint.pod.partition("/")[2]
        if pod in self.silent:
            raise NoSample(f"{pod} is silent")
        return self.words.get(pod, "")

    async def loaded(self, endpoint: Endpoint) -> LoadedDigest:
        """Return what this Pod loads; a Pod that the test has not configured does not answer."""
        pod = endpoint.pod.partition("/")[2]
        if pod not in self.loads:
            raise NoSample(f"{pod} is silent")
        return LoadedDigest(self.loads[pod], pod in self.confirmed)

    async def confirm(self, endpoint: Endpoint, digest: str) -> None:
        pod = endpoint.pod.partition("/")[2]
        if self.loads.get(pod) != digest:
            raise NoSample(f"{pod} has other files")
        self.confirmed.add(pod)

    async def close(self) -> None:
        self.asked = 0


class World:
    """One revision `magika-00001` and its surroundings."""

    def __init__(
        self,
        cluster: Cluster,
        clock: SteppedClock,
        settings: AutoscalerSettings | None = None,
        gpus: GpuSharing | None = None,
    ) -> None:
        self.cluster = cluster
        self.clock = clock
        self.activator = Activator()
        self.signal_available = True  # of requests that wait at activators
        self.replicas = Replicas(clock)
        self.informers = Informers(cluster)
        self._pods = itertools.count(1)
        self.autoscaler = Autoscaler(
            cluster,
            self.informers,
            source=self.replicas,
            progress=self.replicas,
            digests=self.replicas,
            activator=self.activator,
            caller=HttpLoadCaller(),
            clock=clock,
            settings=settings,
            signal_available=lambda: self.signal_available,
            gpus=gpus,
        )

    async def create_revision(
        self,
        policy: Policy | None = None,
        *,
        annotations: Mapping[str, str] | None = None,
        replicas: int = 1,
        spec: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Create the Deployment and PodAutoscaler that Knative makes for a Revision of our class."""
        labels = {LABEL_REVISION: REVISION_NAME, **(labels or {})}
        meta: Object = {"namespace": "default", "labels": labels}
        revision = {"metadata": {**meta, "name": REVISION_NAME}, "spec": {}}
        revision = await self.cluster.create(REVISION, revision, manager=TEST)
        owned = {**meta, "ownerReferences": [owner_reference(REVISION, revision)]}
        deployment = {
            "metadata": {**owned, "name": DEPLOYMENT_NAME},
            "spec": {"replicas": replicas, "template": {"spec": {}}},
        }
        await self.cluster.create(DEPLOYMENT, deployment, manager=TEST)
        asked = {ANNOTATION_CLASS: CLASS, **(annotations or {})}
        if policy is not None:
            asked[POLICY_ANNOTATION] = policy.to_json()
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": DEPLOYMENT_NAME}
        wanted = {"protocolType": "http1", "containerConcurrency": 0, "scaleTargetRef": target, **(spec or {})}
        await self.cluster.create(
            POD_AUTOSCALER,
            {"metadata": {**owned, "name": REVISION_NAME, "annotations": asked}, "spec": wanted},
            manager=TEST,
        )

    async def set_policy(self, text: str) -> None:
        """Set the policy, as the serving reconciler does."""
        patch = {"metadata": {"annotations": {POLICY_ANNOTATION: text}}}
        await self.cluster.patch(POD_AUTOSCALER, REVISION_NAME, patch, "default", manager="knodel")

    # --- the kubelet ---

    async def start_pod(self, *, ready: bool = True) -> str:
        """Create a replica of the revision."""
        name = f"{REVISION_NAME}-{next(self._pods)}"
        meta = {"name": name, "namespace": "default", "labels": {LABEL_REVISION: REVISION_NAME}}
        await self.cluster.create(POD, {"metadata": meta, "spec": {"containers": [{"name": "model"}]}}, manager=TEST)
        await self.set_ready(name, ready)
        return name

    async def set_ready(self, pod: str, ready: bool) -> None:
        """Set the result of its readiness probe."""
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        patch = {"status": {"podIP": "127.0.0.1", "conditions": conditions}}
        await self.cluster.patch(POD, pod, patch, "default", manager=TEST, subresource="status")

    async def stop_pod(self, pod: str) -> None:
        """Delete the replica."""
        await self.cluster.delete(POD, pod, "default", grace_period=0)

    # --- the data plane ---

    async def report_services(self, *, in_path: bool) -> None:
        """Report the ServerlessService: whether the activator is in the path, and the ready replicas."""
        service = await self.get(SERVERLESS_SERVICE, REVISION_NAME)
        ready = sum(1 for pod in (await self.cluster.list(POD, "default")).items if condition_of(pod, "Ready"))
        conditions = [
            {"type": "ActivatorEndpointsPopulated", "status": "True" if in_path else "False"},
            {"type": "Ready", "status": "True" if ready else "Unknown", "reason": "" if ready else "NoHealthyBackends"},
        ]
        status = {
            "serviceName": REVISION_NAME,
            "privateServiceName": f"{REVISION_NAME}-private",
            "observedGeneration": generation_of(service),
            "conditions": conditions,
        }
        await self.cluster.patch(
            SERVERLESS_SERVICE, REVISION_NAME, {"status": status}, "default", manager=TEST, subresource="status"
        )

    # --- looking ---

    async def get(self, kind: Any, name: str) -> Object:
        return await self.cluster.get(kind, name, "default")

    async def pod_autoscaler(self) -> Object:
        return await self.get(POD_AUTOSCALER, REVISION_NAME)

    async def replicas_asked(self) -> int:
        return int((await self.get(DEPLOYMENT, DEPLOYMENT_NAME))["spec"]["replicas"])

    async def mode(self) -> str:
        return str((await self.get(SERVERLESS_SERVICE, REVISION_NAME))["spec"]["mode"])

    async def condition(self, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition of the PodAutoscaler."""
        found = condition_of(await self.pod_autoscaler(), kind) or {}
        return str(found.get("status", "")), str(found.get("reason", ""))

    async def decisions(self) -> list[Any]:
        return list(read_entries(await self.pod_autoscaler(), DECISIONS_ANNOTATION))

    async def until(self, what: Callable[[], Awaitable[Any]], expected: Any) -> None:
        """Wait until the coroutine function returns `expected`."""

        async def holds() -> bool:
            try:
                found = await what()
            except NotFound as error:
                found = error
            assert found == expected, f"{what}: {found!r} instead of {expected!r}"
            return True

        await eventually(holds)

    async def pass_time(self, seconds: float, step: float = 1.0) -> None:
        """Advance the clock in steps, with the autoscaler's ticks."""
        for _ in range(round(seconds / step)):
            self.clock.step(step)
            for _ in range(TURNS):
                await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def running(world: World) -> AsyncIterator[World]:
    """Run the world with its autoscaler."""
    async with at_work(world.informers.run(), world.autoscaler.run()):
        yield world
