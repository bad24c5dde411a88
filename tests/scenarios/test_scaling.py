"""Scaling: to zero and back, with requests held, and none lost when a replica goes."""

from __future__ import annotations

import asyncio

import pytest

from clusters.base.objects import POD, Object, is_deleting
from tests.scenarios.world import World


async def living_pods(world: World, revision: str) -> list[Object]:
    """The Pods of a revision that are not being deleted."""
    found = await world.cluster.list(POD, world.namespace, f"serving.knative.dev/revision={revision}")
    return [pod for pod in found.items if not is_deleting(pod)]


async def at_zero(world: World, revision: str, *, ending: bool = False) -> None:
    """Return once no replica of the revision is left; with `ending`, those that end may be, and may still answer."""

    async def gone() -> bool:
        if ending:
            return not await living_pods(world, revision)
        return not (await world.cluster.list(POD, world.namespace, f"serving.knative.dev/revision={revision}")).items

    await world.eventually(gone, 60)


async def test_an_idle_model_goes_to_zero_and_200_concurrent_requests_wake_it_once(world: World) -> None:
    await world.deploy("sleepy", storageUri=world.artifacts("double"), maxReplicas=1, scaleToZeroAfter="1s")
    await at_zero(world, "sleepy-00001")

    answers = await asyncio.gather(*(world.ask("sleepy") for _ in range(200)))

    assert [answer.status for answer in answers] == [200] * 200
    assert len(await living_pods(world, "sleepy-00001")) == 1


async def test_an_answer_that_was_held_tells_what_it_waited_for(world: World) -> None:
    world.needs("gateway")
    await world.deploy("told", storageUri=world.artifacts("double"), maxReplicas=1, scaleToZeroAfter="1s")
    await at_zero(world, "told-00001")

    held = await world.ask("told")

    assert "queue;dur=" in held.headers["Server-Timing"]


@pytest.mark.fault("A10")
@pytest.mark.fault("M5")
async def test_a_request_in_flight_when_the_replica_goes_is_not_lost(world: World) -> None:
    await world.deploy("slow", storageUri=world.artifacts("slow"), scaleToZeroAfter="1s")

    for _ in range(3):
        # One request that is longer than the idle time, then silence: it must not be cut by the scale-down.
        answer = await world.ask("slow", value=1.0)
        assert answer.status == 200
    await at_zero(world, "slow-00001", ending=True)
    assert (await world.ask("slow", value=1.0)).status == 200


async def test_more_work_brings_more_replicas_up_to_the_maximum_and_silence_takes_them_away(world: World) -> None:
    await world.deploy(
        "busy",
        storageUri=world.artifacts("slow"),
        minReplicas=1,
        maxReplicas=3,
        scaleTarget=1,
        targetUtilization=1.0,
    )

    async with world.under_load("busy", concurrency=6) as load:

        async def grown() -> bool:
            return len(await living_pods(world, "busy-00001")) == 3

        await world.eventually(grown, 40)

    assert load.failures == []
    assert len(await living_pods(world, "busy-00001")) <= 3


async def test_deleting_a_model_leaves_nothing(world: World) -> None:
    await world.deploy("gone", storageUri=world.artifacts("double"), minReplicas=1)

    await world.delete("gone")

    assert (await world.ask("gone")).status == 404
