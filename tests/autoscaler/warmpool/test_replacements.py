"""Replacement of a pool's members: of an old template, ended, never ready, rejected, too old."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from autoscaler.warmpool.claims.keys import PoolKey
from clusters.base.errors import Forbidden
from clusters.base.objects import EVENT
from tests.autoscaler.warmpool.pool_world import PoolWorld, full, pool_world

HOUR = 3_600.0
QUOTA = Forbidden("pods is forbidden: exceeded quota: pods, requested: pods=1, used: pods=2, limited: pods=2")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[PoolWorld]:
    async with pool_world(tmp_path / "cluster.db") as made:
        yield made


async def test_members_of_an_old_template_go_and_the_newest_configuration_counts(world: PoolWorld) -> None:
    old = await full(world)
    await world.seed(generation=10, image="server:10")
    await world.seed(generation=9, image="server:9")
    process = await world.process()
    await process.settle()
    images = {pod["spec"]["containers"][0]["image"] for pod in await world.pods()}
    assert images == {"server:10"}
    assert not old & await world.names()
    assert len(await world.names()) == 3


async def test_a_new_revision_of_the_same_class_replaces_nobody(world: PoolWorld) -> None:
    members = await full(world)
    await world.seed(generation=2, words=("--pool", "--cpu", "1", "--more"))
    await (await world.process()).settle()
    assert await world.names() == members


async def test_members_that_restarted_or_ended_are_replaced_after_a_pause(world: PoolWorld) -> None:
    members = sorted(await full(world))
    process = await world.process()
    await world.restart(members[0])
    await world.report(members[1], phase="Failed")
    again = await process.settle()
    assert await world.names() == {members[2]}
    assert again is not None
    assert 0 < again <= 1.0
    assert ("MembersFail" in (await world.events())[0][0]) and len(await world.events()) == 1
    assert "restarted: retrying after 1 s" in str((await world.status())["reasons"])
    world.clock.step(1.0)
    await process.settle()
    assert len(await world.names()) == 2  # one at a time, until one succeeds
    world.clock.step(1.0)
    await world.become_ready()
    await process.settle()
    assert len(await world.names()) == 3
    assert (await world.status())["reasons"] == ["Fixed: the size is set to 3"]


async def test_members_that_never_become_ready_are_tried_ever_more_rarely(world: PoolWorld) -> None:
    await world.pool(size=2)
    await world.seed()
    process = await world.process()
    tries = 0
    waits: list[float] = []
    while len(waits) < 9:
        again = await process.settle()
        assert again is not None
        if names := await world.names():
            tries += 1
            for name in names:
                await world.restart(name)
            continue
        start = world.clock.monotonic()
        while not await world.names():
            world.clock.step(0.5)
            await process.settle()
        waits.append(round(world.clock.monotonic() - start, 1))
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert tries == 9


async def test_a_member_that_is_refused_is_tried_again_with_the_reason_in_the_status(world: PoolWorld) -> None:
    await world.pool(size=4)
    await world.seed()
    process = await world.process()
    process.gate.refuse, process.gate.most_pods = QUOTA, 2
    await process.settle()
    assert len(await world.names()) == 2
    status = await world.status()
    assert (status["starting"], status["conditions"][0]["reason"]) == (2, "Refused")
    assert "exceeded quota: pods" in status["conditions"][0]["message"]
    assert [reason for reason, _ in await world.events()] == ["Refused"]
    await world.become_ready()
    for seconds in (1.0, 2.0, 4.0):
        world.clock.step(seconds)
        assert await process.settle() == min(2 * seconds, 5.0)
    assert "retrying after 8 s" in str(await world.status())
    assert [event["count"] for event in (await world.cluster.list(EVENT)).items] == [4]
    process.gate.refuse = None
    world.clock.step(7.5)
    await process.settle()
    assert len(await world.names()) == 2
    world.clock.step(0.5)
    await process.settle()
    assert await world.numbers() == (4, 2, 2, 0)
    await world.become_ready()
    await process.settle()
    assert (await world.status())["conditions"][0]["status"] == "True"


async def test_a_stranger_s_token_costs_a_member_its_place(world: PoolWorld) -> None:
    members = await full(world)
    await (await world.process(keys=PoolKey.random())).settle()
    assert not members & await world.names()
    assert len(await world.names()) == 3


@pytest.mark.fault("W7")
async def test_old_members_are_replaced_one_by_one_the_new_one_first(world: PoolWorld) -> None:
    members = await full(world, maxAge="1h")
    process = await world.process()
    world.clock.step(HOUR)
    for left in (3, 2, 1):
        await process.settle()
        names = await world.names()
        assert (len(names & members), len(names - members)) == (left, 4 - left)
        assert (await world.status())["ready"] == 3
        await world.become_ready()
    await process.settle()
    assert len(await world.names()) == 3
    assert not members & await world.names()


async def test_old_members_are_replaced_where_no_room_is_for_one_more(world: PoolWorld) -> None:
    members = await full(world, size=2, maxAge="1h", budget={"cpu": "1.2"})
    world.clock.step(HOUR)
    await replaced_within(world, members, 2)


async def test_old_members_are_replaced_under_a_quota_that_is_full(world: PoolWorld) -> None:
    members = await full(world, size=2, maxAge="1h")
    world.clock.step(HOUR)
    await replaced_within(world, members, 2, most_pods=2)


async def replaced_within(world: PoolWorld, members: set[str], most: int, most_pods: int | None = None) -> None:
    process = await world.process()
    if most_pods is not None:
        process.gate.refuse, process.gate.most_pods = QUOTA, most_pods
    for _ in range(20):
        await process.settle()
        assert most - 1 <= len(await world.names()) <= most
        await world.become_ready()
        world.clock.step(2.0)
    assert not members & await world.names()
