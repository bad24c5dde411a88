"""Benchmark of the whole autoscaler in this process, with an embedded store: the cost of a tick of many revisions.

Each tick reads every replica, and some readings change, so the autoscaler decides, scales, writes and reports. Usage
accounts are written when they are due. The cost is the CPU time of the process from tick to tick, with the store and
its watches. No replicas are started.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from autoscaler.controller import Autoscaler
from autoscaler.metrics.digest_page import LoadedDigest
from autoscaler.metrics.stat import NoSample, Sample
from autoscaler.types import CLASS, POLICY_ANNOTATION, Policy
from autoscaler.warmpool.claims.caller import HttpLoadCaller
from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.base.objects import (
    ANNOTATION_CLASS,
    DEPLOYMENT,
    LABEL_REVISION,
    POD,
    POD_AUTOSCALER,
    REVISION,
    SERVERLESS_SERVICE,
    Object,
    generation_of,
    owner_reference,
)
from clusters.net.endpoints import Endpoint
from clusters.runtime.informer import Informers
from loadtests.bench.figure import Figure
from tests.autoscaler.world import Activator
from tests.support.clusters import embedded_cluster
from tests.support.loops import at_work

REVISIONS = 2_000
CHANGES = 20  # readings that change in a tick: 1 %
TICKS = 30
SETTLED = 5  # consecutive ticks with no more reconciliations than changes and accounts cause
CPU = 1.0  # maximum s of a tick
BUSY, BUSIER = 1.0, 10.0  # used slots of a replica before and after its reading changes
POLICY = Policy(scale_target=4.0, max_replicas=10)
PATIENCE = 300.0  # s until the first reconciliations are done
BENCH = "bench"


class Replicas:
    """A metrics source in which all replicas have `BUSY` slots in use, and `CHANGES` more of them `BUSIER` in each
    tick.
    """

    def __init__(self, first: str) -> None:
        self._first = first
        self._busier: dict[str, float] = {}  # time of the last change
        self._next = 0
        self.changing = False
        self.marks: list[float] = []  # CPU seconds of the process at the beginning of each tick
        self.begun = asyncio.Event()

    async def sample(self, endpoint: Endpoint) -> Sample:
        """A reading."""
        now = time.monotonic()
        if endpoint.pod == self._first:
            self._tick(now)
        since = self._busier.get(endpoint.pod, now)
        used = BUSIER if since < now else BUSY
        busy = BUSY * now + (BUSIER - BUSY) * (now - since)
        return Sample(now, busy, now, used, 0.0)

    async def progress(self, _: Endpoint) -> str:
        """Nothing starts."""
        return ""

    async def loaded(self, endpoint: Endpoint) -> LoadedDigest:
        """Raise NoSample: there are no starts."""
        raise NoSample(endpoint.pod)

    async def confirm(self, endpoint: Endpoint, digest: str) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing: there are no connections."""

    def _tick(self, now: float) -> None:
        self.marks.append(time.process_time())
        self.begun.set()
        if self.changing:
            for number in range(self._next, self._next + CHANGES):
                self._busier[f"default/{_name(number % REVISIONS)}-1"] = now
            self._next += CHANGES


def loop(folder: Path) -> Iterator[Figure]:
    """Yield the CPU time of a tick."""
    idle, took, passes = asyncio.run(_measured(folder / "loop.db"))
    every = f"{REVISIONS} revisions, {CHANGES} readings change"
    yield Figure(f"tick of {every}, p50 of {TICKS}", statistics.median(took), "s CPU", CPU)
    yield Figure("  maximum", max(took), "s CPU")
    yield Figure("  reconciliations per tick", passes / TICKS, "")
    yield Figure("  tick without changes, p50", statistics.median(idle), "s CPU")


async def _measured(path: Path) -> tuple[list[float], list[float], int]:
    """Return the CPU seconds of ticks without and with changes, and the reconciliations in the latter."""
    async with embedded_cluster(path) as cluster:
        for number in range(REVISIONS):
            await _create(cluster, _name(number))
        clock, informers, replicas = SystemClock(), Informers(cluster), Replicas(f"default/{_name(0)}-1")
        autoscaler = Autoscaler(
            cluster, informers, source=replicas, progress=replicas, digests=replicas, activator=Activator(),
            caller=HttpLoadCaller(), clock=clock,
        )  # fmt: skip
        async with at_work(informers.run(), autoscaler.run(), _reports(cluster)):
            await _settled(replicas, autoscaler)
            idle = await _ticks(replicas)
            before = autoscaler.controller.passes
            replicas.changing = True
            took = await _ticks(replicas)
            await _check(cluster)
            return idle, took, autoscaler.controller.passes - before


async def _check(cluster: Cluster) -> None:
    """Check that all changed revisions were scaled. Raises SystemExit otherwise."""
    deployments = (await cluster.list(DEPLOYMENT, "default")).items
    scaled = sum(one["spec"]["replicas"] > 1 for one in deployments)
    if scaled < CHANGES * TICKS / 2:
        raise SystemExit(f"loop: {scaled} of {CHANGES * TICKS} changed revisions were scaled")


async def _settled(replicas: Replicas, autoscaler: Autoscaler) -> None:
    """Wait until all revisions are reconciled and reported. Raises TimeoutError."""
    usual = REVISIONS / 60.0 * 3  # maximum reconciliations per tick for accounts alone
    async with asyncio.timeout(PATIENCE):
        quiet = 0
        while quiet < SETTLED:
            before = autoscaler.controller.passes
            await _next_tick(replicas)
            quiet = quiet + 1 if before > 0 and autoscaler.controller.passes - before < usual else 0


async def _ticks(replicas: Replicas) -> list[float]:
    await _next_tick(replicas)
    first = len(replicas.marks) - 1
    for _ in range(TICKS):
        await _next_tick(replicas)
    return [after - before for before, after in itertools.pairwise(replicas.marks[first:])]


async def _next_tick(replicas: Replicas) -> None:
    replicas.begun.clear()
    await replicas.begun.wait()


async def _create(cluster: Cluster, name: str) -> None:
    """Create a revision with one ready replica, with the objects of Knative and of the kubelet."""
    meta: Object = {"namespace": "default", "labels": {LABEL_REVISION: name}}
    revision = await cluster.create(REVISION, {"metadata": {**meta, "name": name}, "spec": {}}, manager=BENCH)
    owned = {**meta, "ownerReferences": [owner_reference(REVISION, revision)]}
    scaled = f"{name}-deployment"
    spec: Object = {"replicas": 1, "template": {"spec": {}}}
    await cluster.create(DEPLOYMENT, {"metadata": {**owned, "name": scaled}, "spec": spec}, manager=BENCH)
    asked = {ANNOTATION_CLASS: CLASS, POLICY_ANNOTATION: POLICY.to_json()}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": scaled}
    wanted = {"protocolType": "http1", "containerConcurrency": 0, "scaleTargetRef": target}
    described = {"metadata": {**owned, "name": name, "annotations": asked}, "spec": wanted}
    await cluster.create(POD_AUTOSCALER, described, manager=BENCH)
    pod: Object = {"metadata": {**meta, "name": f"{name}-1"}, "spec": {"containers": [{"name": "model"}]}}
    await cluster.create(POD, pod, manager=BENCH)
    status = {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    await cluster.patch(POD, f"{name}-1", {"status": status}, "default", manager=BENCH, subresource="status")


async def _reports(cluster: Cluster) -> None:
    """Report each ServerlessService as ready, as Knative does."""
    reported: set[str] = set()
    while len(reported) < REVISIONS:
        await asyncio.sleep(1.0)
        for service in (await cluster.list(SERVERLESS_SERVICE, "default")).items:
            name = service["metadata"]["name"]
            if name not in reported:
                await _report(cluster, name, service)
                reported.add(name)


async def _report(cluster: Cluster, name: str, service: Object) -> None:
    populated = {"type": "ActivatorEndpointsPopulated", "status": "False"}
    status = {
        "serviceName": name,
        "privateServiceName": f"{name}-private",
        "observedGeneration": generation_of(service),
        "conditions": [populated, {"type": "Ready", "status": "True"}],
    }
    await cluster.patch(SERVERLESS_SERVICE, name, {"status": status}, "default", manager=BENCH, subresource="status")


def _name(number: int) -> str:
    return f"model-{number:05}-00001"
