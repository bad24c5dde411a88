"""The status of a PodAutoscaler: failures of its replicas, Pods of namesakes, and the service mode as work changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.types import Policy
from clusters.base.objects import LABEL_REVISION_UID, POD, REVISION, condition_of, uid_of
from tests.autoscaler.world import REVISION_NAME, TEST, World, running
from tests.support.clock import SteppedClock
from tests.support.clusters import embedded_cluster

CRASHED = {
    "podIP": "127.0.0.1",
    "conditions": [{"type": "Ready", "status": "False"}],
    "containerStatuses": [
        {
            "name": "model",
            "ready": False,
            "restartCount": 2,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "message": "no such file"}},
        }
    ],
}
TOLD = "CrashLoopBackOff: exit code 1, no such file"


async def message(world: World) -> str:
    """Return the message of the condition Active."""
    return str((condition_of(await world.pod_autoscaler(), "Active") or {}).get("message", ""))


async def test_what_keeps_the_first_replica_from_starting_is_told_until_it_is_ready(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path / "store.db") as cluster, running(World(cluster, SteppedClock())) as world:
        await world.create_revision(Policy())
        pod = await world.start_pod(ready=False)
        await cluster.patch(POD, pod, {"status": CRASHED}, "default", manager=TEST, subresource="status")

        async def told() -> bool:
            return (await message(world)).endswith(TOLD)

        await world.until(told, True)
        assert await world.condition("Active") == ("Unknown", "Queued")
        await world.report_services(in_path=True)
        await world.set_ready(pod, True)
        await world.until(lambda: world.condition("Active"), ("True", ""))
        assert await message(world) == ""

        # Once it was ready the trouble is Kubernetes' alone: a route leads to it, and must not be taken from it.
        await cluster.patch(POD, pod, {"status": CRASHED}, "default", manager=TEST, subresource="status")
        await world.until(lambda: world.condition("Active"), ("Unknown", "Queued"))
        assert TOLD not in await message(world)


@pytest.mark.parametrize("same", [True, False])
async def test_a_pod_of_a_namesake_is_no_replica(tmp_path: Path, same: bool) -> None:
    async with embedded_cluster(tmp_path / "store.db") as cluster, running(World(cluster, SteppedClock())) as world:
        await world.create_revision(Policy())
        uid = uid_of(await world.get(REVISION, REVISION_NAME)) if same else "of-a-former-one"
        pod = await world.start_pod(ready=False)
        label = {"metadata": {"labels": {LABEL_REVISION_UID: uid}}}
        await cluster.patch(POD, pod, label, "default", manager=TEST)
        await world.report_services(in_path=True)
        await world.set_ready(pod, True)

        async def actual() -> int:
            return int((await world.pod_autoscaler())["status"].get("actualScale", -1))

        if same:
            await world.until(actual, 1)
        else:
            await world.start_pod()
            await world.start_pod()
            await world.until(actual, 2)


async def test_the_activator_comes_into_the_path_when_work_leaves_too_little_for_a_burst_and_goes_again(
    tmp_path: Path,
) -> None:
    async with embedded_cluster(tmp_path / "store.db") as cluster, running(World(cluster, SteppedClock())) as world:
        policy = Policy(min_replicas=1, max_replicas=1, scale_target=10, target_burst_capacity=5, stable_window=10)
        await world.create_revision(policy)
        pod = await world.start_pod()
        await world.until(world.mode, "Serve")
        world.replicas.work(pod, 7)  # 3 slots are free
        await world.pass_time(4)
        await world.until(world.mode, "Proxy")
        world.replicas.work(pod, 0)
        await world.pass_time(4)
        await world.until(world.mode, "Serve")
