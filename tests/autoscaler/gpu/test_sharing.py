"""Serving and elastic training on the same GPUs: who gives to whom, and what is said about it."""

from __future__ import annotations

import json

from autoscaler.scaling.replay import INPUTS_ANNOTATION, replay
from autoscaler.types import Policy, read_entries
from clusters.base.objects import condition_of
from clusters.embedded.cluster import EmbeddedCluster
from tests.autoscaler.gpu.world import GPU, GpuWorld, gpu_world
from tests.support.wait import eventually

CROWD = 3  # requests


async def until_size(made: GpuWorld, size: int, name: str = "train") -> None:
    """Wait until the Job has that size."""

    async def has() -> bool:
        found = await made.size(name)
        assert found == size, f"{name} has {found}"
        return True

    await eventually(has)


async def test_training_gets_free_gpus_after_they_were_free_for_a_while(cluster: EmbeddedCluster) -> None:
    async with gpu_world(cluster, 4) as made:
        await made.create_job("train", 1, 8, 1)
        await made.pass_time(5)
        assert await made.size() == 1
        await made.pass_time(15)
        await until_size(made, 4)
        assert f"gets 3 {GPU} that are free: 4 of 8 workers" in await made.events()


async def test_a_model_at_zero_gets_gpus_at_once_while_a_job_holds_all(cluster: EmbeddedCluster) -> None:
    async with gpu_world(cluster, 4) as made:
        await made.create_job("train", 1, 8, 4)
        await made.pass_time(3)
        assert len(await made.pods("train")) == 4
        made.world.activator.holds(queued=1)
        await until_size(made, 3)
        await made.world.until(made.world.replicas_asked, 1)
        assert f"gives 1 of 4 {GPU} to Model default/chat: 3 of 8 workers" in await made.events()


async def test_while_the_giver_ends_the_model_waits_for_a_gpu_and_does_not_fail(cluster: EmbeddedCluster) -> None:
    async with gpu_world(cluster, 2, end=5.0) as made:
        world = made.world
        await made.create_job("train", 1, 8, 2)
        await made.pass_time(3)
        world.activator.holds(queued=1)
        await world.until(world.replicas_asked, 1)
        await made.pass_time(2)
        await world.until(lambda: world.condition("Active"), ("Unknown", "WaitingForGPU"))
        assert await world.condition("ReplicasStarted") == ("False", "WaitingForGPU")
        message = str((condition_of(await world.pod_autoscaler(), "Active") or {})["message"])
        assert "Job default/train gives 1" in message
        await made.pass_time(8)
        world.activator.holds(queued=0)
        await world.until(lambda: world.condition("Active"), ("True", ""))
        assert await world.condition("ReplicasStarted") == ("True", "")


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
    async with gpu_world(cluster, 1, replicas=1) as made:
        world = made.world
        await made.create_job("train", 1, 1, 1)
        await made.act()  # the Job's Pod is first
        for _ in range(30):
            await made.pass_time(60)
        await world.until(lambda: world.condition("Active"), ("Unknown", "WaitingForGPU"))
        await world.until(world.replicas_asked, 0)


async def test_a_model_without_gpus_is_not_limited(cluster: EmbeddedCluster) -> None:
    policy = Policy(scale_target=1, target_utilization=1, max_replicas=4)
    async with gpu_world(cluster, 0, policy=policy) as made:
        made.world.activator.holds(queued=CROWD)
        await made.world.until(made.world.replicas_asked, 4)
