"""Fault A7: the wall clock is set forward or back while the autoscaler measures durations."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from autoscaler.types import Policy
from clusters.embedded.cluster import EmbeddedCluster
from tests.autoscaler.test_controller import serving
from tests.autoscaler.world import World, running
from tests.support.clock import SteppedClock

HOUR = 3_600.0
JUMPS = [HOUR, -HOUR, 30 * 24 * HOUR, -30 * 24 * HOUR]
WIDE = Policy(scale_target=2, target_utilization=1, max_replicas=8, scale_to_zero_after=600)


@pytest.fixture
async def world(cluster: EmbeddedCluster) -> AsyncIterator[World]:
    async with running(World(cluster, SteppedClock())) as made:
        yield made


@pytest.mark.fault("A7")
@pytest.mark.parametrize("jump", JUMPS)
async def test_steady_work_is_decided_on_as_if_the_clock_had_not_been_set(world: World, jump: float) -> None:
    pod = await serving(world, WIDE)
    world.replicas.work(pod, 5.0)
    await world.pass_time(5.0)
    await world.until(world.replicas_asked, 3)
    for _ in range(2):
        world.replicas.work(await world.start_pod(), 0.0)
    await world.pass_time(20.0)
    before = await world.decisions()
    world.clock.jump(jump)
    await world.pass_time(20.0)
    assert await world.replicas_asked() == 3
    assert await world.decisions() == before, "neither a panic nor a way down"


@pytest.mark.fault("A7")
@pytest.mark.parametrize("jump", JUMPS)
async def test_the_last_replica_goes_after_its_idle_time_and_not_before(world: World, jump: float) -> None:
    await serving(world, Policy(scale_to_zero_after=20.0))
    await world.pass_time(10.0)
    world.clock.jump(jump)
    await world.pass_time(8.0)
    assert (await world.replicas_asked(), await world.mode()) == (1, "Serve")
    await world.pass_time(4.0)
    await world.until(world.mode, "Proxy")
