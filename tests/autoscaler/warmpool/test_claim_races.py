"""Claims that race with each other, with a scale-down and with crashes, on the embedded cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from autoscaler.warmpool.claims.marks import LABEL_POOL
from autoscaler.warmpool.claims.pods import is_claimed
from clusters.base.objects import (
    DEPLOYMENT,
    LABEL_REVISION,
    POD,
    Key,
    is_deleting,
    labels_of,
    name_of,
)
from tests.autoscaler.warmpool.process import Crash, DyingCluster, Process, running
from tests.autoscaler.warmpool.world import NAMESPACE, World, deployment
from tests.support.wait import eventually

CLAIMS, PROCESSES, MEMBERS = 1_000, 4, 20
REAP = 11.0  # s; more than `WarmStart.reap_after`
MOST_WRITES = 100  # of one start: it has some 10


async def recovered(world: World, process: Process, key: Key, replicas: int) -> None:
    """Run reconciler passes and advance the clock until nothing is pending."""

    async def passes() -> bool:
        await process.caught_up()
        await process.start(key, replicas)
        await process.caught_up()
        left = await process.claims.finish(key, await world.deployment(key))
        orphans = await process.claims.reap()
        world.clock.step(REAP / 10)
        assert (left, orphans) == (None, None)
        return True

    await eventually(passes)


async def check(world: World, key: Key, replicas: int) -> None:
    """Assert that no member leaked or was used twice, and that the revision has its replicas, all owned."""

    async def holds() -> bool:
        assert not await world.halves()
        assert len(await world.of(key)) == replicas
        assert await world.of(key) == await world.owned(key)
        assert int((await world.deployment(key))["spec"]["replicas"]) == replicas
        return True

    await eventually(holds)
    assert all(times == 1 for times in world.uses().values())


@pytest.mark.fault("W2")
async def test_of_a_thousand_claims_at_once_each_member_goes_to_one(world: World) -> None:
    members = await world.members(MEMBERS)
    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(running(world)) for _ in range(PROCESSES)]
        revisions = [f"iris-{number:05}" for number in range(CLAIMS)]
        served = await asyncio.gather(
            *(
                processes[number % PROCESSES].claims.begin(Key(NAMESPACE, revision), deployment(revision), 1)
                for number, revision in enumerate(revisions)
            )
        )
    assert sum(served) == MEMBERS
    assert world.uses() == Counter(members)
    pods = (await world.cluster.list(POD, NAMESPACE, LABEL_POOL)).items
    assert {labels_of(pod)[LABEL_REVISION] for pod in pods} == {
        revision for revision, number in zip(revisions, served, strict=True) if number
    }


@pytest.mark.fault("W2")
async def test_claimers_that_fail_now_and_then_still_use_no_member_twice(world: World) -> None:
    members = await world.members(MEMBERS)
    world.caller.failing = set(members[::3])
    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(running(world)) for _ in range(PROCESSES)]
        served = await asyncio.gather(
            *(
                processes[number % PROCESSES].claims.begin(Key(NAMESPACE, "iris"), deployment("iris"), MEMBERS)
                for number in range(PROCESSES)
            )
        )
    assert sum(served) == MEMBERS - len(members[::3])
    assert world.uses() == Counter(members)


@pytest.mark.fault("W3")
@pytest.mark.parametrize("death", [Crash, asyncio.CancelledError])
async def test_a_claimer_that_dies_after_any_of_its_writes_leaks_no_member(
    world: World, death: type[BaseException]
) -> None:
    for last in range(1, MOST_WRITES):
        key = await world.deploy(f"iris-{last:05}")
        await world.members(3)
        world.caller.failing = {min(await world.names(LABEL_POOL))}  # so that a deletion is among the writes
        cluster = DyingCluster(world.cluster, last, death)
        async with running(world, cluster) as process:
            await _start_whole(process, key)
        world.caller.failing = set()
        async with running(world) as process:
            await recovered(world, process, key, 2)
            await check(world, key, 2)
            await world.scale(key, 0)
        for name in await world.names(LABEL_POOL):
            await world.cluster.delete(POD, name, NAMESPACE, grace_period=0)
        if cluster.writes < last:
            assert last > 6, "a start has more writes than that"
            return
    pytest.fail("it never came to its end")


async def _start_whole(process: Process, key: Key) -> None:
    """Claim two replicas until the process crashes."""
    with suppress(Crash, asyncio.CancelledError, BaseExceptionGroup):
        await process.start(key, 2)
        await process.finished(key)


@pytest.mark.parametrize("step", ["reserve", "assign", "label", "adopt"])
async def test_a_scale_down_at_any_step_leaves_as_many_replicas_as_are_wished(world: World, step: str) -> None:
    key = await world.deploy(replicas=1)
    (own,) = await eventually(lambda: world.of(key))
    await world.report(own)
    await world.members(2)
    async with running(world) as process:
        found = await world.deployment(key)
        if step in ("reserve", "assign"):  # before, or while, the member is told

            async def scale_down(_pod: str) -> None:
                await world.scale(key, 1)

            world.caller.on_call = scale_down
            await process.claims.begin(key, found, 2)
        else:
            await process.start(key, 2)
            if step == "adopt":
                await world.followed(key, 2)
                await process.finish(key)
            await world.scale(key, 1)
        await world.followed(key, 1)
        await recovered(world, process, key, 1)
        await check(world, key, 1)
        assert await world.of(key) == {own}, "who became ready last goes"


async def test_a_scale_down_between_the_reading_and_the_adoption_kills_nobody_who_serves(world: World) -> None:
    key = await world.deploy(replicas=1)
    (own,) = await eventually(lambda: world.of(key))
    await world.report(own)
    await world.members(2)

    class Late:
        """Lowers the replicas when the ReplicaSet was just read."""

        def __getattr__(self, name: str) -> Any:
            return getattr(world.cluster, name)

        async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
            found = await world.cluster.get(kind, name, namespace)
            await world.scale(key, 1)
            await world.followed(key, 1)
            return found

    async with running(world, Late()) as process:
        await process.start(key, 2)
        await world.followed(key, 2)
        await process.finish(key)
    async with running(world) as process:
        await recovered(world, process, key, 1)
        await check(world, key, 1)
    assert await world.of(key) == {own}, "who became ready last goes"


async def test_a_scale_to_zero_while_a_member_is_claimed_ends_with_zero(world: World) -> None:
    key = await world.deploy()
    await world.members(1)
    async with running(world) as process:
        await process.start(key, 1)
        await world.scale(key, 0)
        await world.followed(key, 0)
        await recovered(world, process, key, 0)
        await check(world, key, 0)


async def test_a_second_claimer_goes_on_where_the_first_one_stands(world: World) -> None:
    key = await world.deploy()
    members = await world.members(3)
    async with running(world) as first, running(world) as second:
        assert await first.start(key, 1) == 1
        await second.caught_up()
        assert await second.start(key, 1) == 0, "what the first one claimed counts"
        await asyncio.gather(first.finished(key), second.finished(key))
        await check(world, key, 1)
        await recovered(world, second, key, 2)
        await check(world, key, 2)
        assert await world.of(key) < set(members)


async def test_two_claimers_at_the_same_revision_leave_no_member_behind(world: World) -> None:
    key = await world.deploy()
    await world.members(4)
    async with running(world) as first, running(world) as second:
        await asyncio.gather(first.start(key, 2), second.start(key, 2))
        await asyncio.gather(recovered(world, first, key, 2), recovered(world, second, key, 2))
        await check(world, key, 2)


@pytest.mark.fault("W5")
async def test_claims_of_many_revisions_share_a_pool_without_harm(world: World) -> None:
    keys = [await world.deploy(f"model-{number:05}") for number in range(8)]
    await world.members(5)
    async with running(world) as process:
        served = await asyncio.gather(*(process.start(key, 1) for key in keys))
        assert sum(served) == 5
        for key in keys:
            await process.finished(key)
        for key in keys:
            await check(world, key, 1)


async def test_a_namesake_of_a_deleted_revision_gets_none_of_its_members(world: World) -> None:
    key = await world.deploy()
    await world.members(1)
    async with running(world) as process:
        await process.claims.begin(key, await world.deployment(key), 1)
        await world.cluster.delete(DEPLOYMENT, f"{key.name}-deployment", NAMESPACE)

        async def gone() -> bool:
            return not (await world.cluster.list(DEPLOYMENT, NAMESPACE)).items

        await eventually(gone)
        again = deployment(key.name)
        again["spec"]["selector"]["matchLabels"] = {"serving.knative.dev/revisionUID": "another"}
        again["spec"]["template"]["metadata"]["labels"]["serving.knative.dev/revisionUID"] = "another"
        await world.cluster.create(DEPLOYMENT, again, manager="test")
        await recovered(world, process, key, 0)
        pods = [pod for pod in (await world.cluster.list(POD, NAMESPACE)).items if not is_deleting(pod)]
        assert not [name_of(pod) for pod in pods if is_claimed(pod)]
