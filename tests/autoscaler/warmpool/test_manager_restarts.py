"""Processes that end after any write, take turns, or have stale caches; and pools over many cycles."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.base.errors import Unavailable
from clusters.base.objects import POD, WARM_POOL, name_of, parse_timestamp
from tests.autoscaler.warmpool.pool_world import KEY, Crashed, PoolWorld, Process, pool_world

HOUR = 3_600.0
CYCLES = 200
MOST_WRITES = 40  # of one way from one state to another


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[PoolWorld]:
    async with pool_world(tmp_path / "cluster.db") as made:
        yield made


async def run_until_crash(world: PoolWorld, crash_after: int) -> bool:
    """Return whether a process that should end after its `crash_after`th write did so."""
    process = await world.process()
    process.gate.crash_after = crash_after
    try:
        await process.settle()
    except Crashed:
        return True
    finally:
        await process.stop()
    return False


async def crash_after_every_write(world: PoolWorld, size: int) -> None:
    """End a process after its first write, the next after its second …; there are never more than `size` members."""
    for number in range(1, MOST_WRITES):
        crashed = await run_until_crash(world, number)
        await world.bury()
        assert len(await world.names()) <= size
        if not crashed:
            return
    raise AssertionError("processes crash on and on")


@pytest.mark.fault("W3")
async def test_a_crash_after_any_write_makes_no_second_set_of_members(world: PoolWorld) -> None:
    await world.pool(size=3)
    await world.seed()
    for crash_after in (1, 1, 1, 1, 1):
        await run_until_crash(world, crash_after)
        assert len(await world.names()) <= 3
    await crash_after_every_write(world, 3)
    assert len(await world.names()) == 3
    await world.become_ready()
    await (await world.process()).settle()
    assert await world.numbers() == (3, 3, 0, 0)


async def test_a_crash_while_old_members_are_replaced_loses_and_doubles_none(world: PoolWorld) -> None:
    await world.pool(size=2, maxAge="1h")
    await world.seed()
    await (await world.process()).settle()
    await world.become_ready()
    first = await world.names()
    world.clock.step(HOUR)
    for _ in range(10):
        await crash_after_every_write(world, 3)
        await world.become_ready()
        ready = [pod for pod in await world.pods() if (pod.get("status") or {}).get("conditions")]
        assert len(ready) >= 2
    assert not first & await world.names()
    assert len(await world.names()) == 2


@pytest.mark.fault("W3", "W6")
async def test_a_crash_while_a_pool_changes_its_template_leaves_no_old_member(world: PoolWorld) -> None:
    await world.pool(size=3)
    await world.seed()
    await (await world.process()).settle()
    first = await world.names()
    await world.seed(generation=2, image="server:2")
    await crash_after_every_write(world, 6)
    assert len(await world.names()) == 3
    assert not first & await world.names()


async def test_two_processes_in_turn_keep_one_set_of_members(world: PoolWorld) -> None:
    await world.pool(size=2)
    await world.seed()
    one, two = await world.process(), await world.process()
    for size in (2, 4, 1, 3, 0, 2):
        await world.change_pool(size=size)
        await one.settle()
        await two.settle()
        assert len(await world.names()) == size
        await world.become_ready()
        one, two = two, one


async def test_a_process_that_sees_nothing_new_asks_for_no_member_twice(world: PoolWorld) -> None:
    await world.pool(size=3)
    await world.seed()
    process = await world.process()
    await process.stop()  # its watches stand still
    for _ in range(5):
        await process.manager.reconcile(KEY)
    assert len(await world.names()) == 3
    assert await world.numbers() == (3, 0, 3, 0)


async def test_a_process_that_sees_nothing_new_deletes_no_member_for_one_that_it_deleted(world: PoolWorld) -> None:
    await world.pool(size=3)
    await world.seed()
    await (await world.process()).settle()
    await world.become_ready()
    await world.change_pool(size=2)
    late = await world.process()
    await late.stop()
    for _ in range(5):
        await late.manager.reconcile(KEY)
        await world.bury()
    assert len(await world.names()) == 2


async def test_an_answer_that_is_lost_does_not_double_the_member(world: PoolWorld) -> None:
    await world.pool(size=2)
    await world.seed()
    process = await world.process()
    process.gate.crash_after = 1
    with pytest.raises(Crashed):
        await process.manager.reconcile(KEY)
    await process.settle()
    assert len(await world.names()) == 2


async def test_a_cluster_that_does_not_answer_is_no_refusal(world: PoolWorld) -> None:
    await world.pool(size=1)
    await world.seed()
    process = await world.process()
    process.gate.refuse = Unavailable("no answer")
    with pytest.raises(Unavailable):
        await process.settle()
    process.gate.refuse = None
    await process.settle()
    assert len(await world.names()) == 1


async def test_a_restart_does_not_shrink_a_pool_of_size_auto(world: PoolWorld) -> None:
    await world.pool(size="auto", min=0)
    await world.seed()
    process = await world.process()
    await process.settle()
    (memory,) = process.manager._memories.values()
    for _ in range(3):
        process.manager.record_start("default", memory.pool_class, claimed=True)
    await process.settle()
    assert len(await world.names()) == 3
    await process.stop()
    await (await world.process()).settle()
    assert len(await world.names()) == 3


async def test_a_pool_that_was_deleted_and_made_again_starts_with_members_of_its_own(world: PoolWorld) -> None:
    await world.pool(size=2)
    await world.seed()
    process = await world.process()
    await process.settle()
    first = await world.names()
    await world.cluster.delete(WARM_POOL, KEY.name, KEY.namespace)
    await world.pool(size=2)
    await process.settle()
    await world.bury()
    assert len(await world.names() - first) == 2


@pytest.mark.fault("W7", shortened="8 h of a virtual clock, not 24 h")
async def test_hundreds_of_cycles_recycle_every_member_and_leak_none(world: PoolWorld) -> None:
    await world.pool(size=3, maxAge="10m")
    await world.seed()
    process = await world.process()
    source, born, most = random.Random(7), set[str](), 0
    for cycle in range(CYCLES):
        await one_cycle(world, process, source)
        pods = await world.pods()
        most = max(most, len(pods))
        born |= {name_of(pod) for pod in pods}
        ages = [world.clock.now() - parse_timestamp(pod["metadata"]["creationTimestamp"]) for pod in pods]
        assert max((age.total_seconds() for age in ages), default=0.0) <= 1_500.0, cycle  # none during a pause
    assert most <= 4
    assert len(born) >= CYCLES // 2
    assert len(process.manager._memories) == 1
    assert process.manager._pods.own_writes.created(await world.pool_uid()) == []
    assert len((await world.cluster.list(POD)).items) <= 4


async def one_cycle(world: PoolWorld, process: Process, source: random.Random) -> None:
    """Simulate 2.5 minutes: members start; sometimes one crashes, or is claimed, adopted and later deleted."""
    await process.settle()
    await world.become_ready()
    await process.settle()
    names = sorted(await world.names())
    event = source.random()
    if names and event < 0.1:
        await world.restart(source.choice(names))
    elif names and event < 0.4:
        await world.claim(name := source.choice(names))
        await world.adopt(name)
        await process.settle()
        await world.cluster.delete(POD, name, "default", grace_period=0)
    world.clock.step(150.0)
