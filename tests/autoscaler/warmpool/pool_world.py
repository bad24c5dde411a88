"""Pool managers over a real embedded cluster; the test plays serving, Knative, the kubelet and the claims."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from autoscaler.config import WarmStart
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.marks import ANNOTATION_CLAIM, LABEL_POOL, LABEL_SEED
from autoscaler.warmpool.manager import PoolManager
from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.base.errors import ClusterError
from clusters.base.objects import (
    DEPLOYMENT,
    EVENT,
    LABEL_CONFIGURATION_GENERATION,
    LABEL_REVISION,
    POD,
    WARM_POOL,
    Key,
    Kind,
    Object,
    is_deleting,
    labels_of,
    name_of,
    timestamp,
    uid_of,
    version_of,
)
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from tests.autoscaler.warmpool.keeping import keep_warm
from tests.support.clock import SteppedClock
from tests.support.clusters import embedded_cluster

TEST = "test"
POOL = "fast"
KEY = Key("default", POOL)
SECRET = PoolKey(b"k" * 32)
SETTLED_AFTER = 40  # passes; more would be a loop without an end


class Crashed(Exception):
    """Raised where the process ends."""


class Gate:
    """A cluster that counts writes, rejects Pods, and ends the process after a write."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.writes: list[str] = []
        self.refuse: ClusterError | None = None
        self.most_pods: int | None = None
        self.crash_after: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def create(self, kind: Kind, obj: Object, **options: Any) -> Object:
        if kind == POD and self.refuse is not None and await self._is_full():
            raise type(self.refuse)(f"pods {obj['metadata']['name']!r}: {self.refuse}")
        return self._wrote(f"create {kind.kind}", await self._cluster.create(kind, obj, **options))

    async def patch(self, kind: Kind, name: str, patch: Any, namespace: str = "", **options: Any) -> Object:
        before = version_of(await self._cluster.get(kind, name, namespace))
        after = await self._cluster.patch(kind, name, patch, namespace, **options)
        return after if version_of(after) == before else self._wrote(f"patch {kind.kind}", after)

    async def delete(self, kind: Kind, name: str, namespace: str = "", **options: Any) -> None:
        await self._cluster.delete(kind, name, namespace, **options)
        self._wrote(f"delete {kind.kind}", {})

    async def _is_full(self) -> bool:
        return self.most_pods is None or len((await self._cluster.list(POD)).items) >= self.most_pods

    def _wrote(self, what: str, answer: Object) -> Object:
        self.writes.append(what)
        if len(self.writes) == self.crash_after:
            raise Crashed(what)
        return answer


class _Hasty(SystemClock):
    """Informers that retry at once."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.001))


class Process:
    """One process of the autoscaler: a manager and its informers."""

    def __init__(self, world: PoolWorld, *, keys: PoolKey = SECRET, settings: WarmStart | None = None) -> None:
        self._world = world
        self.gate = Gate(world.cluster)
        cluster: Cluster = self.gate
        self.informers = Informers(cluster, _Hasty())
        self.pool_informers = Informers(cluster, _Hasty(), selectors={POD: LABEL_POOL})
        self.keep = keep_warm(world.clock)
        self.manager = PoolManager(
            cluster,
            self.informers,
            self.pool_informers,
            keys=keys,
            clock=world.clock,
            settings=settings or WarmStart(),
            recorder=Recorder(cluster, "knodel-autoscaler", world.clock),
            keep=self.keep,
        )
        self._watching: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the informers."""
        self._watching = [asyncio.create_task(each.run()) for each in (self.informers, self.pool_informers)]
        for informers in (self.informers, self.pool_informers):
            await informers.synced()

    async def stop(self) -> None:
        """Stop the informers."""
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    async def see(self) -> None:
        """Return when the informers show all writes."""
        await self.informers.caught_up()
        await self.pool_informers.caught_up()

    async def settle(self, key: Key = KEY) -> float | None:
        """Run passes until one writes nothing; return its result."""
        for _ in range(SETTLED_AFTER):
            await self._world.bury()
            await self.see()
            before = len(self.gate.writes)
            again = await self.manager.reconcile(key)
            if len(self.gate.writes) == before:
                return again
        raise AssertionError(f"no end of writes: {self.gate.writes[-10:]}")


class PoolWorld:
    """A cluster with WarmPools, their seeds, and processes that start and stop."""

    def __init__(self, cluster: EmbeddedCluster, clock: SteppedClock) -> None:
        self.cluster = cluster
        self.clock = clock
        self._processes: list[Process] = []

    async def process(self, **options: Any) -> Process:
        """Start another process."""
        made = Process(self, **options)
        self._processes.append(made)
        await made.start()
        return made

    async def end(self) -> None:
        for process in self._processes:
            await process.stop()

    # --- serving and Knative ---

    async def pool(self, name: str = POOL, namespace: str = "default", **spec: Any) -> Object:
        """Create a WarmPool without a seed."""
        obj = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
        return await self.cluster.create(WARM_POOL, obj, manager=TEST)

    async def change_pool(self, **spec: Any) -> None:
        await self.cluster.patch(WARM_POOL, POOL, {"spec": spec}, KEY.namespace, manager=TEST)

    async def seed(
        self, generation: int = 1, *, name: str = POOL, namespace: str = "default", image: str = "server:1", **more: Any
    ) -> None:
        """Create what Knative makes for a pool's seed Configuration."""
        revision = f"knodel-pool-{name}-{generation:05d}"
        labels = {LABEL_SEED: name, LABEL_REVISION: revision, LABEL_CONFIGURATION_GENERATION: str(generation)}
        obj = {
            "metadata": {"name": f"{revision}-deployment", "namespace": namespace, "labels": labels},
            "spec": {
                "replicas": 0,
                "template": {
                    "metadata": {"labels": labels, "annotations": {"knodel.dev/a": "b"}},
                    "spec": pod_spec(revision, image, **more),
                },
            },
        }
        await self.cluster.create(DEPLOYMENT, obj, manager=TEST)

    # --- the kubelet ---

    async def report(self, pod: str, namespace: str = "default", **status: Any) -> None:
        await self.cluster.patch(POD, pod, {"status": status}, namespace, manager=TEST, subresource="status")

    async def become_ready(self, *pods: str, namespace: str = "default") -> None:
        """Report these Pods, or all, as ready."""
        at = timestamp(self.clock.now())
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": at}
        for pod in pods or [name_of(pod) for pod in await self.pods(namespace) if not (pod.get("status") or {})]:
            await self.report(pod, namespace, phase="Running", podIP="127.0.0.1", conditions=[ready])

    async def restart(self, pod: str) -> None:
        """Report a restart of its server."""
        await self.report(pod, containerStatuses=[{"name": "server", "restartCount": 1}])

    async def bury(self) -> None:
        """End the Pods that are being deleted."""
        for namespace in ("default", "other"):
            for pod in await self.pods(namespace):
                if is_deleting(pod):
                    await self.cluster.delete(POD, name_of(pod), namespace, grace_period=0)

    # --- the claims ---

    async def claim(self, pod: str) -> None:
        """Reserve members for a revision."""
        patch = {"metadata": {"annotations": {ANNOTATION_CLAIM: json.dumps({"revision": "m-00001"})}}}
        await self.cluster.patch(POD, pod, patch, "default", manager=TEST)

    async def adopt(self, pod: str) -> None:
        """Make the member a replica of its revision."""
        patch = {"metadata": {"labels": {LABEL_POOL: None, LABEL_REVISION: "m-00001"}, "ownerReferences": None}}
        await self.cluster.patch(POD, pod, patch, "default", manager=TEST)

    # --- looking ---

    async def pods(self, namespace: str = "default") -> Sequence[Object]:
        return (await self.cluster.list(POD, namespace)).items

    async def names(self, namespace: str = "default") -> set[str]:
        """Return the names of the members, free or claimed."""
        return {name_of(pod) for pod in await self.pods(namespace) if LABEL_POOL in labels_of(pod)}

    async def status(self, name: str = POOL, namespace: str = "default") -> dict[str, Any]:
        return dict((await self.cluster.get(WARM_POOL, name, namespace)).get("status") or {})

    async def pool_uid(self) -> str:
        return uid_of(await self.cluster.get(WARM_POOL, POOL, "default"))

    async def numbers(self) -> tuple[int, int, int, int]:
        """Return size, ready, starting and claimed of the status."""
        status = await self.status()
        return status["size"], status["ready"], status["starting"], status["claimed"]

    async def events(self) -> list[tuple[str, str]]:
        """Return reason and message of the Events."""
        return [(event["reason"], event["message"]) for event in (await self.cluster.list(EVENT)).items]


def pod_spec(revision: str, image: str = "server:1", *, words: Sequence[str] = ("--pool", "--cpu", "1")) -> Object:
    """Return a seed's Pod spec on Kubernetes: the server and queue-proxy."""
    server = {
        "name": "user-container",
        "image": image,
        "args": [*words],
        "env": [{"name": "PORT", "value": "8080"}, {"name": "K_REVISION", "value": revision}],
        "ports": [{"name": "user-port", "containerPort": 8080}],
        "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
    }
    proxy = {"name": "queue-proxy", "image": "queue:1", "resources": {"requests": {"cpu": "25m"}}}
    return {"containers": [server, proxy], "enableServiceLinks": False}


@contextlib.asynccontextmanager
async def pool_world(path: Path) -> AsyncIterator[PoolWorld]:
    """Run a world on a fresh cluster, whose clock only the test advances."""
    clock = SteppedClock()
    async with embedded_cluster(path, clock=clock) as cluster:
        world = PoolWorld(cluster, clock)
        try:
            yield world
        finally:
            await world.end()


async def full(world: PoolWorld, size: int = 3, **spec: Any) -> set[str]:
    """Return a pool whose members are all ready; the process that created them has ended."""
    await world.pool(size=size, **spec)
    await world.seed()
    process = await world.process()
    for _ in range(size):
        await process.settle()
        await world.become_ready()
    await process.settle()
    await process.stop()
    return await world.names()
