"""Serving and an elastic Job share the GPUs of a node, on the installed platform and a real scheduler.

GPUs are once a resource in the node's status, as a device plugin has them, and once devices of Dynamic Resource
Allocation, for which the scheduler preempts nobody. Nothing else requests the resource of these tests.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from autoscaler.gpu.elastic import JOB
from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import NODE, Object, condition_of, name_of
from serving.types.settings.settings import Settings
from tests.cluster import dra
from tests.cluster.node_resources import set_node_resource
from tests.cluster.place import PATIENCE, SMALL
from tests.cluster.sharing import END, LONG, START, SharedGpus
from tests.scenarios.world import World
from tests.support.artifacts import ArtifactServer
from tests.support.kubernetes import KubeTarget

GPUS = 4
NAMES = {"status": "knodel.test/gpu", "dra": "dra.knodel.test/gpu"}


WITH_DRA = pytest.mark.skipif(not dra.is_built(), reason="needs `python -m tests.testbed build --dra`")


@pytest.fixture(params=["status", pytest.param("dra", marks=WITH_DRA)])
async def shared(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    target: KubeTarget,
    installed: Settings,
    namespace: str,
    artifacts: ArtifactServer,
    tmp_path: Path,
) -> AsyncIterator[SharedGpus]:
    """The installed platform on a node with GPUs."""
    gateway, resource = installed.gateway, NAMES[request.param]
    address = f"http://{gateway.address}:{gateway.port}"
    world = World(cluster, address, gateway.domain, artifacts.uri, defaults=SMALL, patience=PATIENCE)
    node = name_of((await cluster.list(NODE)).items[0])
    async with AsyncExitStack() as stack:
        if request.param == "dra":
            await stack.enter_async_context(dra.devices(cluster, target.kubeconfig, tmp_path, node, resource, GPUS))
        else:
            await set_node_resource(cluster, world, node, resource, GPUS)
            stack.push_async_callback(set_node_resource, cluster, world, node, resource, None)
        try:
            yield SharedGpus(cluster, world, namespace, installed.server.image, resource)
        finally:
            await world.sweep()
            with suppress(NotFound):
                await cluster.delete(JOB, "train", namespace)
    await world.close()


async def test_a_job_gives_gpus_to_a_model_at_zero_and_gets_them_back(shared: SharedGpus) -> None:
    await shared.create_job(1, GPUS)
    await shared.trainers_are(GPUS)  # into what was free for a while

    await shared.deploy("chat")
    assert f"gives 1 of 4 {shared.resource} to Model {shared.namespace}/chat: 3 of 4 workers" in await shared.events()
    await shared.has_no_replica("chat")
    await shared.trainers_are(GPUS)

    began = time.monotonic()
    answer = await shared.world.ask("chat", namespace=shared.namespace)
    assert answer.status == 200, answer.body
    assert time.monotonic() - began < END + START
    await shared.trainers_are(GPUS - 1)


async def test_a_model_waits_for_gpus_that_a_job_needs_at_least_and_does_not_fail(shared: SharedGpus) -> None:
    await shared.create_job(GPUS, GPUS)
    await shared.trainers_are(GPUS)
    await shared.deploy("late", wait=False, startupDeadline="20s")

    def waits(found: Object) -> bool:
        started = condition_of(found, "ReplicasStarted") or {}
        return started.get("reason") == "WaitingForGPU" and "are held by others" in started.get("message", "")

    await shared.world.until("late", waits, shared.namespace, LONG)
    await shared.cluster.delete(JOB, "train", shared.namespace)
    await shared.world.ready("late", shared.namespace)
