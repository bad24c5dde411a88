"""PaddlePaddle EDL's experiment (case 2) on the real control plane: 133 nodes that KWOK plays, and six elastic Jobs.

`loadtests.gpu.edl` plays the same in a simulator. A unit of the nodes' resource is one CPU of the experiment.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from autoscaler.gpu.elastic import JOB
from autoscaler.main import PROGRAM as AUTOSCALER
from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.base.errors import AlreadyExists, NotFound
from clusters.base.objects import MODEL, POD, REVISION, Kind, Object, labels_of
from clusters.net.endpoints import is_ready
from clusters.runtime.informer import Informers
from loadtests.gpu.edl import NODES, jain_index
from serving.platform.main import PROGRAM as CONTROLLER
from serving.types.annotations import LABEL_MODEL
from tests.cluster import kwok
from tests.cluster.acting import acting, settings_of
from tests.cluster.jobs import make_job
from tests.cluster.place import MANAGER
from tests.scenarios.world import model
from tests.support.kubernetes import KubeTarget

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not kwok.is_built(), reason="needs `python -m tests.testbed build --kwok`"),
]

CPU = "edl.knodel.test/gpu"
"""Its name is that of GPUs, so that they are shared."""
PRIORITY_CLASS = Kind("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False)
FIXED = "knodel-test-fixed"
"""PriorityClass of a job's servers and master: above trainers, and they evict nobody."""
STEP = 90.0
"""s between two changes of the number of servers."""
JOBS, LEAST, MOST, FIRST = 6, 2, 60, 15
SUBMIT = 8.0
"""s between two submissions of jobs."""
START = 90.0
"""s in which the first servers start."""
RISE = 20.0
"""s from a step up until its servers run: a trainer's end (5 s), a Pod's start (9 s), and the scheduler's binds."""
MISSING = 0.06
"""Most of the wanted server-seconds, from the first step up, in which no server runs."""
FAIR = 0.99
"""Least mean of Jain's index of the trainers of jobs."""


@dataclass(slots=True)
class Seen:
    """Observations, once a second: wanted and running servers, trainers of each job, units of all running Pods."""

    times: list[float] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    servers: list[int] = field(default_factory=list)
    trainers: list[list[int]] = field(default_factory=list)
    used: list[float] = field(default_factory=list)

    def missing(self, since: float) -> float:
        """Return the share of the wanted server-seconds in which no server ran."""
        late = [number for number, time in enumerate(self.times) if time >= since]
        return sum(max(0, self.wanted[one] - self.servers[one]) for one in late) / sum(self.wanted[one] for one in late)


class Experiment:
    """The Model `nginx`, the Jobs of six trainings, and their Pods in an informer."""

    def __init__(self, cluster: Cluster, namespace: str, pods: Informers) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.seen = Seen()
        self._pods = pods[POD]
        self._wanted = 0
        self._began = time.monotonic()

    async def create_model(self, servers: int) -> None:
        """Deploy so many servers of 3 CPU. Nothing is fetched: their Pods are objects only."""
        resources = {"cpu": "10m", "memory": "16Mi", "gpu": 3, "gpuResource": CPU}
        wanted = model(
            "nginx", self.namespace, storageUri="https://models.example/nginx.onnx", digest="sha256:" + "0" * 64,
            resources=resources, minReplicas=servers, maxReplicas=servers,
        )  # fmt: skip
        await self.cluster.create(MODEL, wanted, manager=MANAGER)
        self._wanted = servers

    async def want(self, servers: int) -> None:
        """Ask for another number of servers."""
        spec = {"minReplicas": servers, "maxReplicas": servers}
        await self.cluster.patch(MODEL, "nginx", {"spec": spec}, self.namespace, manager=MANAGER)
        self._wanted = servers

    async def submit(self, number: int) -> None:
        """Submit a training: 10 parameter servers of 4 CPU, a master of 1, and elastic trainers of 5."""
        for role, size, units in (("servers", 10, 4), ("master", 1, 1)):
            await self._create(f"train-{number}-{role}", size, units, FIXED)
        await self._create(f"train-{number}", FIRST, 5, "knodel-training", (LEAST, MOST))

    async def _create(
        self, name: str, size: int, units: int, priority: str, elastic: tuple[int, int] | None = None
    ) -> None:
        amounts = {"cpu": "10m", "memory": "16Mi", CPU: str(units)}
        made = make_job(name, self.namespace, size, amounts, elastic=elastic, priorityClassName=priority)
        await self.cluster.create(JOB, made, manager=MANAGER)

    def observe(self) -> None:
        """Note what runs now."""
        running = [pod for pod in self._pods if is_ready(pod)]
        jobs = Counter(labels_of(pod).get("job-name", "") for pod in running)
        self.seen.times.append(time.monotonic() - self._began)
        self.seen.wanted.append(self._wanted)
        self.seen.servers.append(sum(labels_of(pod).get(LABEL_MODEL) == "nginx" for pod in running))
        self.seen.trainers.append([jobs[f"train-{number}"] for number in range(JOBS)])
        self.seen.used.append(sum(map(_units, running)) / sum(NODES))

    async def watch_for(self, seconds: float) -> float:
        """Observe once a second; return the seconds until as many servers ran as are wanted, infinite if never."""
        began, reached = time.monotonic(), float("inf")
        while time.monotonic() - began < seconds:
            await asyncio.sleep(1.0)
            self.observe()
            if self.seen.servers[-1] >= self._wanted and reached == float("inf"):
                reached = time.monotonic() - began
        return reached


@pytest.fixture
async def experiment(cluster: Cluster, target: KubeTarget, namespace: str, tmp_path: Path) -> AsyncIterator[Experiment]:
    """The nodes, and a control plane of the test's own whose Models have a PriorityClass."""
    installed = await settings_of(cluster)
    settings = replace(installed, server=replace(installed.server, gpu_priority_class="knodel-serving"))
    fixed = {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": FIXED},
        "value": 10, "preemptionPolicy": "Never",
    }  # fmt: skip
    with suppress(AlreadyExists):
        await cluster.create(PRIORITY_CLASS, fixed, manager=MANAGER)
    pods = Informers(cluster, SystemClock(), namespace=namespace)
    made = Experiment(cluster, namespace, pods)
    watching = asyncio.create_task(pods.run())
    async with (
        kwok.fake_nodes(cluster, target.kubeconfig, tmp_path, CPU, NODES),
        acting(AUTOSCALER, cluster, target, namespace, tmp_path, settings),
        acting(CONTROLLER, cluster, target, namespace, tmp_path, settings),
    ):
        try:
            yield made
        finally:
            watching.cancel()
            await _remove(cluster, namespace)
            with suppress(NotFound):
                await cluster.delete(PRIORITY_CLASS, FIXED)


async def test_serving_gets_its_cpus_and_trainings_share_the_rest(experiment: Experiment) -> None:
    await experiment.create_model(400)
    assert await experiment.watch_for(START) < START
    for number in range(JOBS):
        await experiment.submit(number)
        await experiment.watch_for(SUBMIT)
    await experiment.watch_for(STEP - SUBMIT)
    rises, since = [], 0.0
    for servers in (300, 200, 100, 200, 300, 400):
        up = servers > experiment.seen.wanted[-1]
        since = since or (experiment.seen.times[-1] if up else 0.0)
        await experiment.want(servers)
        reached = await experiment.watch_for(STEP)
        rises += [reached] if up else []

    seen = experiment.seen
    jobs = [number for number, time in enumerate(seen.times) if time >= START + JOBS * SUBMIT + STEP]
    jain = sum(jain_index(seen.trainers[one]) for one in jobs) / len(jobs)
    use = sum(seen.used[one] for one in jobs) / len(jobs)
    print(f"steps up: {rises}; missing {seen.missing(since):.3f}; Jain {jain:.4f}; utilisation {100 * use:.1f} %")
    assert max(rises) <= RISE, rises
    assert seen.missing(since) <= MISSING
    assert jain >= FAIR
    assert [pod for pod in seen.trainers[-1] if pod < LEAST] == []


def _units(pod: Object) -> int:
    requests = (
        container["resources"]["requests"] for container in pod["spec"]["containers"] if "resources" in container
    )
    return sum(int(one.get(CPU, 0)) for one in requests)


async def _remove(cluster: Cluster, namespace: str) -> None:
    """Delete Model and Jobs, and wait until no Pod is left, so that KWOK ends after its last Pod."""
    with suppress(NotFound):
        await cluster.delete(MODEL, "nginx", namespace)
    for job in (await cluster.list(JOB, namespace)).items:
        with suppress(NotFound):
            await cluster.delete(JOB, job["metadata"]["name"], namespace)
    for _ in range(120):
        left = (await cluster.list(POD, namespace)).items
        if not left and not (await cluster.list(REVISION, namespace)).items:
            return
        await asyncio.sleep(1.0)
