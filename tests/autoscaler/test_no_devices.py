"""Fault A11: replicas that fit on no node, with the real workload controllers and a fictitious device."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from autoscaler.types import Policy
from clusters.base.clock import SystemClock
from clusters.base.objects import DEPLOYMENT, LABEL_REVISION, POD, condition_of, name_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.workloads import Workloads
from clusters.runtime.informer import Informers
from tests.autoscaler.nodes import LACKS, RESOURCE, Nodes
from tests.autoscaler.world import DEPLOYMENT_NAME, REVISION_NAME, TEST, World, running
from tests.support.clock import SteppedClock
from tests.support.loops import at_work
from tests.support.wait import eventually

WAITING = 6  # requests
MORE = 10  # expected to come by the rate of those while a replica starts (10 s, until a start was measured)
MINUTES = 10
POLICY = Policy(scale_target=1, target_utilization=1, max_replicas=50, scale_to_zero_after=600)


class DeviceWorld:
    """The autoscaler's world with ReplicaSets that create Pods, and nodes with limited devices."""

    def __init__(self, world: World, cluster: EmbeddedCluster) -> None:
        self.world = world
        self.nodes = Nodes(cluster, world.clock)

    async def pass_time(self, seconds: int) -> None:
        """Advance the clock; the nodes act each second."""
        for _ in range(seconds):
            await self.nodes.look()
            await self.world.pass_time(1.0)
        self.world.autoscaler.reconsider()  # a look that a pass asks for comes in real time

    async def starts(self, replicas: int) -> bool:
        """Return whether so many Pods exist."""
        await self.nodes.look()
        return len((await self.world.cluster.list(POD, "default")).items) == replicas

    async def asks_for_enough(self) -> bool:
        """Return whether the queued requests led to a decision."""
        return await self.world.replicas_asked() >= WAITING


@asynccontextmanager
async def fleet(cluster: EmbeddedCluster) -> AsyncIterator[DeviceWorld]:
    """Return a revision whose replicas request a device."""
    world, informers = World(cluster, SteppedClock()), Informers(cluster)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(world))
        await world.create_revision(POLICY)
        labels = {LABEL_REVISION: REVISION_NAME}
        server = {"name": "server", "image": "server:1", "resources": {"limits": {RESOURCE: "1"}}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [server]}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        await cluster.patch(DEPLOYMENT, DEPLOYMENT_NAME, {"spec": spec}, "default", manager=TEST)
        workloads = Workloads(cluster, informers, SystemClock())
        await stack.enter_async_context(at_work(informers.run(), workloads.run()))
        yield DeviceWorld(world, cluster)


async def message(world: World) -> str:
    """Return the end of Active's message, from the reason on."""
    said = str((condition_of(await world.pod_autoscaler(), "Active") or {}).get("message", ""))
    return said[said.find("Unschedulable") :]


@pytest.mark.fault("A11")
async def test_without_any_device_the_first_replica_waits_alone_and_says_why(cluster: EmbeddedCluster) -> None:
    async with fleet(cluster) as made:
        await made.world.until(lambda: made.starts(1), True)
        await made.pass_time(60 * MINUTES // 2)
        await made.world.until(lambda: message(made.world), f"Unschedulable: {LACKS}")
        assert await made.world.condition("Active") == ("Unknown", "Queued")
        assert await made.world.condition("ReplicasStarted") == ("False", "Unschedulable")
        assert (len(made.nodes.born), len(await made.nodes.pending())) == (1, 1)


@pytest.mark.fault("A11")
async def test_beside_a_replica_that_serves_the_next_one_says_why_it_waits(cluster: EmbeddedCluster) -> None:
    async with fleet(cluster) as made:
        world = made.world
        made.nodes.allocatable = 1
        await world.until(lambda: made.starts(1), True)
        await world.until(world.mode, "Serve")
        (serving,) = (await cluster.list(POD, "default")).items
        world.replicas.work(name_of(serving), 2.0)
        await made.pass_time(60)
        await eventually(made.nodes.pending)
        await world.until(lambda: world.condition("ReplicasStarted"), ("False", "Unschedulable"))
        assert await world.condition("Active") == ("True", "")

        made.nodes.allocatable = len(made.nodes.born)
        await made.pass_time(2)
        await world.until(lambda: world.condition("ReplicasStarted"), ("True", ""))


@pytest.mark.fault("A11")
async def test_when_the_devices_are_gone_one_batch_waits_for_them_and_no_more_are_made(
    cluster: EmbeddedCluster,
) -> None:
    async with fleet(cluster) as made:
        world = made.world
        made.nodes.allocatable = 1
        await world.until(lambda: made.starts(1), True)
        await world.until(world.mode, "Serve")
        await world.report_services(in_path=False)
        await made.pass_time(2)
        made.nodes.allocatable = 0
        (served,) = (await cluster.list(POD, "default")).items
        await cluster.delete(POD, served["metadata"]["name"], "default", grace_period=0)
        await world.until(world.mode, "Proxy")

        world.activator.holds(queued=WAITING)
        await made.pass_time(10)
        await world.until(made.asks_for_enough, True)
        await made.pass_time(10)
        asked = await world.replicas_asked()
        assert WAITING <= asked <= WAITING + MORE, "one batch"
        await world.until(lambda: made.starts(asked), True)
        await made.nodes.look()
        born = len(made.nodes.born)
        await made.pass_time(60 * MINUTES)
        assert await world.replicas_asked() == asked
        assert (len(made.nodes.born), len(await made.nodes.pending())) == (born, asked)
        assert await world.condition("Active") == ("Unknown", "Queued")
        assert await world.condition("ReplicasStarted") == ("False", "Unschedulable")

        made.nodes.allocatable = asked
        await made.pass_time(2)
        world.activator.holds(queued=0)
        await world.until(lambda: world.condition("Active"), ("True", ""))
        assert len(made.nodes.born) == born
