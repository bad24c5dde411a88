"""Serving and an elastic Job share the GPUs of a node, on the installed platform and a real scheduler.

The node's status has a resource of the tests' own. Nothing else takes it, so the scheduler counts it as it counts GPUs.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from autoscaler.gpu.elastic import ANNOTATION_ELASTIC, JOB
from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import EVENT, NODE, POD, Object, condition_of, is_deleting, labels_of, name_of
from clusters.net.endpoints import is_ready
from serving.types.settings.settings import Settings
from tests.cluster.node_resources import set_node_resource
from tests.cluster.place import MANAGER, PATIENCE, SMALL
from tests.scenarios.world import World
from tests.support.artifacts import ArtifactServer

GPU = "knodel.test/gpu"
GPUS = 4
END, START = 2.0, 25.0
"""s: a trainer's end, and the start of a Pod on the busy machine of the tests."""
TRAINER = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(0)); time.sleep(3600)"
LONG = 60.0  # s, times the world's patience


class Shared:
    """The node's GPUs, the Job `train`, and Models with one GPU for each replica."""

    def __init__(self, cluster: Cluster, world: World, namespace: str, node: str, image: str) -> None:
        self.cluster = cluster
        self.world = world
        self.namespace = namespace
        self._node = node
        self._image = image

    async def has_gpus(self, units: int | None) -> None:
        """Give the node so many GPUs; None takes the resource off it."""
        await set_node_resource(self.cluster, self.world, self._node, GPU, units)

    async def create_job(self, least: int, most: int) -> None:
        """Create the Job at its minimum."""
        small = {"cpu": "10m", "memory": "64Mi", GPU: "1"}
        container = {
            "name": "trainer", "image": self._image, "command": ["python", "-c", TRAINER],
            "resources": {"requests": small, "limits": small},
        }  # fmt: skip
        pod = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 5}
        annotations = {ANNOTATION_ELASTIC: json.dumps({"min": least, "max": most})}
        metadata = {"name": "train", "namespace": self.namespace, "annotations": annotations}
        spec = {"parallelism": least, "completions": None, "backoffLimit": 1000, "template": {"spec": pod}}
        made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        await self.cluster.create(JOB, made, manager=MANAGER)

    async def trainers_are(self, number: int) -> None:
        """Return once so many trainers run, and the Job wants as many."""

        async def holds() -> bool:
            job = await self.cluster.get(JOB, "train", self.namespace)
            pods = (await self.cluster.list(POD, self.namespace)).items
            running = [pod for pod in pods if labels_of(pod).get("job-name") == "train" and is_ready(pod)]
            found = (job["spec"]["parallelism"], len(running))
            assert found == (number, number), found
            return True

        await self.world.eventually(holds, LONG)

    async def deploy(self, name: str, **spec: Any) -> Object:
        """Deploy a Model with one GPU for each replica."""
        resources = {**SMALL["resources"], "gpu": 1, "gpuResource": GPU}
        uri = self.world.artifacts("double")
        fields = {"resources": resources, "scaleToZeroAfter": "1s", **spec}
        return await self.world.deploy(name, namespace=self.namespace, storageUri=uri, **fields)

    async def has_no_replica(self, name: str) -> None:
        """Return once the Model is at zero."""

        async def holds() -> bool:
            pods = (await self.cluster.list(POD, self.namespace)).items
            return not [pod for pod in pods if name_of(pod).startswith(f"{name}-0") and not is_deleting(pod)]

        await self.world.eventually(holds, LONG)

    async def events(self) -> list[str]:
        """The messages of Events about the Job."""
        found = (await self.cluster.list(EVENT, self.namespace)).items
        return [one["message"] for one in found if one["involvedObject"]["kind"] == "Job"]


@pytest.fixture
async def shared(
    cluster: Cluster, installed: Settings, namespace: str, artifacts: ArtifactServer
) -> AsyncIterator[Shared]:
    """The installed platform on a node with GPUs."""
    gateway = installed.gateway
    address = f"http://{gateway.address}:{gateway.port}"
    world = World(cluster, address, gateway.domain, artifacts.uri, defaults=SMALL, patience=PATIENCE)
    node = name_of((await cluster.list(NODE)).items[0])
    made = Shared(cluster, world, namespace, node, installed.server.image)
    await made.has_gpus(GPUS)
    try:
        yield made
    finally:
        await world.sweep()
        with suppress(NotFound):
            await cluster.delete(JOB, "train", namespace)
        await made.has_gpus(None)
        await world.close()


async def test_a_job_gives_gpus_to_a_model_at_zero_and_gets_them_back(shared: Shared) -> None:
    await shared.create_job(1, GPUS)
    await shared.trainers_are(GPUS)  # into what was free for a while

    await shared.deploy("chat")
    assert f"gives 1 of 4 {GPU} to Model {shared.namespace}/chat: 3 of 4 workers" in await shared.events()
    await shared.has_no_replica("chat")
    await shared.trainers_are(GPUS)

    began = time.monotonic()
    answer = await shared.world.ask("chat", namespace=shared.namespace)
    assert answer.status == 200, answer.body
    assert time.monotonic() - began < END + START
    await shared.trainers_are(GPUS - 1)


async def test_a_model_waits_for_gpus_that_a_job_needs_at_least_and_does_not_fail(shared: Shared) -> None:
    await shared.create_job(GPUS, GPUS)
    await shared.trainers_are(GPUS)
    await shared.deploy("late", wait=False, startupDeadline="20s")

    def waits(found: Object) -> bool:
        started = condition_of(found, "ReplicasStarted") or {}
        return started.get("reason") == "WaitingForGPU" and "are held by others" in started.get("message", "")

    await shared.world.until("late", waits, shared.namespace, LONG)
    await shared.cluster.delete(JOB, "train", shared.namespace)
    await shared.world.ready("late", shared.namespace)
