"""A day of a pool on a stepped clock: members crash, are claimed, grow old; and nothing of them is left. Fault W7."""

from __future__ import annotations

import asyncio
import gc
import os
import random
from pathlib import Path

import pytest

from clusters.base.objects import POD, name_of, parse_timestamp
from loadtests.bench.processes import ProcessUsage, usage_of
from tests.autoscaler.warmpool.pool_world import PoolWorld, pool_world
from tests.autoscaler.warmpool.test_manager_restarts import one_cycle
from tests.faults.kit.resources import FEW, SHARE, SLACK

CYCLES = 24 * 60 * 60 // 150  # of two minutes and a half
WARM_UP = 50
OLDEST = 1_500.0  # s: maxAge, the pause after a crash, and a cycle


def holding() -> tuple[ProcessUsage, int]:
    """What this process holds, and how many asyncio tasks."""
    gc.collect()
    return usage_of(os.getpid()), len(asyncio.all_tasks())


@pytest.mark.timeout(300)
@pytest.mark.fault("W7")
async def test_after_a_day_every_member_was_recycled_and_nothing_has_grown(tmp_path: Path) -> None:
    async with pool_world(tmp_path / "cluster.db") as world:
        await world.pool(size=3, maxAge="10m")
        await world.seed()
        process, source, born = await world.process(), random.Random(11), set[str]()
        for cycle in range(CYCLES):
            await one_cycle(world, process, source)
            born |= await recycled(world)
            if cycle == WARM_UP:
                base, tasks = holding()
        after, tasks_after = holding()
    assert len(born) >= CYCLES // 2
    assert tasks_after <= tasks
    assert after.memory <= base.memory * (1 + SHARE) + SLACK, f"{base.memory >> 20} to {after.memory >> 20} MiB"
    assert abs(after.files - base.files) <= FEW and abs(after.tasks - base.tasks) <= FEW


async def recycled(world: PoolWorld) -> set[str]:
    """The names of the members, none of them too old."""
    pods = (await world.cluster.list(POD)).items
    ages = [world.clock.now() - parse_timestamp(pod["metadata"]["creationTimestamp"]) for pod in pods]
    assert max((age.total_seconds() for age in ages), default=0.0) <= OLDEST
    return {name_of(pod) for pod in pods}
