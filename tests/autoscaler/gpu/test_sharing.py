"""Serving and elastic training on the same GPUs: who gives to whom, and what is said about it."""

from __future__ import annotations

import json
from dataclasses import replace

from autoscaler.gpu.claims import AllocationSettings, Tenant
from autoscaler.scaling.replay import INPUTS_ANNOTATION, replay
from autoscaler.types import Policy, read_entries
from clusters.base.objects import LABEL_REVISION, POD, condition_of, labels_of
from clusters.embedded.cluster import EmbeddedCluster
from tests.autoscaler.gpu.world import GPU, POLICY, GpuWorld, gpu_world
from tests.autoscaler.world import REVISION_NAME
from tests.support.wait import eventually

CROWD = 3  # requests
ONE = replace(POLICY, max_replicas=1)


async def until_size(made: GpuWorld, size: int, name: str = "train") -> None:
    """Wait until the Job has that size."""

    async def has() -> bool:
        found = await made.size(name)
        assert found == size, f"{name} has {found}"
        return True

    await eventually(has)


async def until_event(made: GpuWorld, message: str) -> None:
    """Wait until an Event about a Job has that message; it is written after the size."""

    async def has() -> bool:
        assert message in await made.events()
        return True

    await eventually(has)


async def has_replica(made: GpuWorld) -> bool:
    """Return whether the Model's first Pod exists, on a node or not."""
    pods = (await made.cluster.list(POD, "default")).items
    return any(labels_of(pod).get(LABEL_REVISION) == REVISION_NAME for pod in pods)


async def test_a_job_grows_back_when_the_model_is_at_zero(cluster: EmbeddedCluster) -> None:
    async with gpu_world(cluster, 4, policy=ONE) as made:
        await made.create_job("train", 1, 8, 4)
        await made.pass_time(3)
        made.world.activator.holds(queued=1)
        await until_size(made, 3)
        await made.pass_time(5)
        made.world.activator.holds(queued=0)
        await made.world.report_services(in_path=True)
        await made.pass_time(10)
        assert await made.size() == 3  # the Model is not idle for long enough yet
        await made.pass_time(30)
        await until_size(made, 4)
        await until_event(made, f"gets 1 {GPU} that are free: 4 of 8 workers")


async def test_a_model_at_zero_gets_gpus_at_once_while_a_job_holds_all(cluster: EmbeddedCluster) -> None:
    async with gpu_world(cluster, 4, policy=ONE) as made:
        await made.create_job("train", 1, 8, 4)
        await made.pass_time(3)
        assert len(await made.pods("train")) == 4
        made.world.activator.holds(queued=1)
        await until_size(made, 3)
        await made.world.until(made.world.replicas_asked, 1)
        await until_event(made, f"gives 1 of 4 {GPU} to Model default/chat: 3 of 8 workers")


async def test_while_the_giver_ends_the_model_waits_for_a_gpu_and_does_not_fail(cluster: EmbeddedCluster) -> None:
    async with gpu_world(cluster, 2, policy=ONE, end=5.0) as made:
        world = made.world
        await made.create_job("train", 1, 8, 2)
        await made.pass_time(3)
        world.activator.holds(queued=1)
        await world.until(world.replicas_asked, 1)
        await until_size(made, 1)
        await eventually(lambda: has_replica(made))  # the ReplicaSet creates it in real time
        await made.pass_time(2)
        await world.until(lambda: world.condition("Active"), ("Unknown", "WaitingForGPU"))
        assert await world.condition("ReplicasStarted") == ("False", "WaitingForGPU")
        message = str((condition_of(await world.pod_autoscaler(), "Active") or {})["message"])
        assert "Job default/train gives 1" in message
        await made.pass_time(8)
        world.activator.holds(queued=0)
        await world.until(lambda: world.condition("Active"), ("True", ""))
        await world.until(lambda: world.condition("ReplicasStarted"), ("True", ""))


async def test_a_limited_decision_names_the_holder_and_is_the_same_when_replayed(cluster: EmbeddedCluster) -> None:
    async with gpu_world(cluster, 2) as made:
        world = made.world
        await made.create_job("train", 1, 8, 2)
        await made.pass_time(3)
        world.activator.holds(queued=CROWD)
        await made.pass_time(5)
        await world.until(world.replicas_asked, 1)
        last = (await world.decisions())[-1]
        assert last["to"] == 1
        (reason,) = (one for one in last["reasons"] if one["rule"] == "GPU")
        assert reason["values"] == {"granted": 1}
        assert "1 of 2 nvidia.com/gpu are held by others" in reason["message"]
        entry = json.loads(json.dumps(read_entries(await world.pod_autoscaler(), INPUTS_ANNOTATION)[-1]))
        again = replay(entry)
        assert again.desired == 1
        assert next(step.message for step in again.steps if step.rule == "GPU") == reason["message"]


async def test_a_new_version_without_a_gpu_waits_beyond_its_progress_deadline(cluster: EmbeddedCluster) -> None:
    policy = Policy(scale_target=1, target_utilization=1)
    async with gpu_world(cluster, 1, policy=policy, replicas=1) as made:
        world = made.world
        await made.create_job("a-train", 1, 1, 1)  # the node starts Pods by name, so its Pod is the first
        await made.act()
        for _ in range(4):
            world.clock.step(300.0)
            await made.pass_time(2)
        await world.until(lambda: world.condition("Active"), ("Unknown", "WaitingForGPU"))
        await world.until(world.replicas_asked, 0)


async def test_gpus_that_no_node_has_are_neither_limited_nor_waited_for(cluster: EmbeddedCluster) -> None:
    async with gpu_world(cluster, 0) as made:
        made.world.activator.holds(queued=CROWD)
        await made.world.until(made.world.replicas_asked, POLICY.max_replicas)
        await made.pass_time(8)
        await made.world.until(lambda: made.world.condition("ReplicasStarted"), ("False", "Unschedulable"))
        assert await made.world.replicas_asked() >= CROWD


async def test_the_limit_of_a_namespace_holds_while_gpus_are_free(cluster: EmbeddedCluster) -> None:
    settings = AllocationSettings(tenants={"default": Tenant(limit={GPU: 1})})
    async with gpu_world(cluster, 4, settings=settings) as made:
        made.world.activator.holds(queued=CROWD)
        await made.pass_time(5)
        await made.world.until(made.world.replicas_asked, 1)
