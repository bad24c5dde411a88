"""Replicas of a component over one embedded cluster: all watch, and only the leader acts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.base.errors import KnodelError, Unavailable
from clusters.base.objects import LEASE, NAMESPACE, SECRET, Key
from clusters.embedded.cluster import EmbeddedCluster
from clusters.net.exposition import render
from clusters.runtime.informer import Informers
from clusters.runtime.lease import LeaderLease
from clusters.runtime.manager.fence import FencedCluster
from clusters.runtime.manager.manager import Component, Manager
from tests.support.wait import eventually

PERIOD = 0.05  # s between renewals
DURATION = 0.4  # s that a Lease outlives its holder


class Replica:
    """One process's worth: writes a Secret in its own name for as long as it may act."""

    def __init__(self, cluster: EmbeddedCluster, name: str) -> None:
        self.name = name
        self.acting = False
        self.broken = asyncio.Event()
        self.slow_end = asyncio.Event()
        self.slow_end.set()
        self.changed = asyncio.Event()
        self.writes: list[str] = []
        self.fenced: Cluster | None = None
        self._cluster = cluster
        self.lease = LeaderLease(cluster, "leader", "knodel", name, SystemClock(), DURATION, PERIOD)
        self.manager = Manager(cluster, self.lease, self.make, self._wait_for_change)

    def make(self, cluster: Cluster) -> Component:
        """Compose."""
        self.fenced = cluster
        informers = Informers(cluster)
        informers[SECRET]

        async def run() -> None:
            self.acting = True
            try:
                await self.broken.wait()
                raise KnodelError("broken")
            finally:
                await self.slow_end.wait()
                self.acting = False

        return Component(informers, (), run)

    async def write(self) -> None:
        """What acting means."""
        assert self.fenced is not None
        metadata = {"generateName": "written-", "namespace": "knodel"}
        made = await self.fenced.create(SECRET, {"metadata": metadata}, manager=self.name)
        self.writes.append(made["metadata"]["name"])

    async def _wait_for_change(self) -> None:
        await self.changed.wait()
        self.changed.clear()


@asynccontextmanager
async def running(replica: Replica) -> AsyncIterator[Callable[[], None]]:
    """The replica, and how to ask for its end."""
    stop = asyncio.Event()
    task = asyncio.create_task(replica.manager.run(stop))
    try:
        yield stop.set
    finally:
        stop.set()
        await asyncio.wait_for(task, 5)


async def holder(cluster: EmbeddedCluster) -> str:
    """Who holds the Lease."""
    return str((await cluster.get(LEASE, "leader", "knodel"))["spec"]["holderIdentity"])


async def test_a_standby_is_ready_and_acts_only_when_the_leader_ends(cluster: EmbeddedCluster) -> None:
    first, second = Replica(cluster, "first"), Replica(cluster, "second")
    async with running(first) as end_first:
        await eventually(lambda: first.acting)
        async with running(second):
            await eventually(lambda: second.manager.ready)
            assert not second.acting
            with pytest.raises(Unavailable, match="does not lead"):
                await second.write()

            end_first()

            await eventually(lambda: second.acting, DURATION)  # given back, not run out
            assert not first.acting
            await second.write()


async def test_a_leader_that_lost_its_lease_stops_at_once_and_comes_back_as_a_candidate(
    cluster: EmbeddedCluster,
) -> None:
    replica = Replica(cluster, "first")
    async with running(replica):
        await eventually(lambda: replica.acting)
        stolen = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1}}
        await cluster.patch(LEASE, "leader", stolen, "knodel", manager="thief")

        await eventually(lambda: not replica.acting)
        with pytest.raises(Unavailable):
            await replica.write()

        await eventually(lambda: replica.acting)  # the thief never renewed it
        await replica.write()
        assert replica.manager.leads
        assert "knodel_compositions_total 2" in render(replica.manager.families())


@pytest.mark.fault("K8")
async def test_no_write_comes_after_the_lease_was_given_back(cluster: EmbeddedCluster) -> None:
    replica = Replica(cluster, "first")
    async with running(replica):
        await eventually(lambda: replica.acting)

    assert not replica.acting
    assert await holder(cluster) == ""
    with pytest.raises(Unavailable):
        await replica.write()


async def test_new_settings_make_everything_anew_and_keep_the_lease(cluster: EmbeddedCluster) -> None:
    replica = Replica(cluster, "first")
    async with running(replica):
        await eventually(lambda: replica.acting)
        before, term = replica.fenced, replica.lease.fencing

        replica.changed.set()

        await eventually(lambda: replica.fenced is not before and replica.acting)
        assert replica.lease.fencing == term
        assert await holder(cluster) == "first"


async def test_an_end_that_is_asked_for_while_everything_is_made_anew_is_an_end(cluster: EmbeddedCluster) -> None:
    replica = Replica(cluster, "first")
    async with running(replica) as end:
        await eventually(lambda: replica.acting)
        replica.slow_end.clear()
        replica.changed.set()
        await eventually(lambda: not replica.manager.ready)

        end()
        for _ in range(20):
            await asyncio.sleep(0)

        assert await holder(cluster) == "first"  # not given back while it may still act
        replica.slow_end.set()
    assert not replica.acting
    assert await holder(cluster) == ""
    assert "knodel_compositions_total 1" in render(replica.manager.families())


@pytest.mark.fault("K8", "K10")
async def test_a_new_leader_acts_once_it_has_seen_the_last_writes_of_the_former_one(cluster: EmbeddedCluster) -> None:
    first, second = Replica(cluster, "first"), Replica(cluster, "second")
    asked = asyncio.Event()
    async with running(first) as end_first:
        await eventually(lambda: first.acting)
        async with running(second):
            await eventually(lambda: second.manager.ready)

            async def caught_up(informers: Informers) -> None:
                asked.set()
                await second.broken.wait()

            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(Informers, "caught_up", caught_up)
                end_first()
                await asyncio.wait_for(asked.wait(), 5)
                assert not second.acting


async def test_a_part_that_breaks_ends_the_replica_with_its_error_and_frees_the_lease(cluster: EmbeddedCluster) -> None:
    replica = Replica(cluster, "first")
    task = asyncio.create_task(replica.manager.run(asyncio.Event()))
    await eventually(lambda: replica.acting)

    replica.broken.set()

    with pytest.raises(KnodelError, match="broken"):
        await asyncio.wait_for(task, 5)
    assert await holder(cluster) == ""


@pytest.mark.fault("K8")
async def test_reads_go_through_the_fence_and_no_write_does(cluster: EmbeddedCluster) -> None:
    class Nobody:
        valid = False

    await cluster.create(NAMESPACE, {"metadata": {"name": "n"}}, manager="tests")
    fenced = FencedCluster(cluster, Nobody())
    key = Key("", "n")

    assert (await fenced.get(NAMESPACE, "n"))["metadata"]["name"] == "n"
    assert len((await fenced.list(NAMESPACE)).items) == 1
    for write in (
        fenced.create(NAMESPACE, {"metadata": {"name": "m"}}, manager="tests"),
        fenced.apply(NAMESPACE, {"metadata": {"name": "n", "labels": {"a": "b"}}}, manager="tests"),
        fenced.patch(NAMESPACE, key.name, {"metadata": {"labels": {"a": "b"}}}, manager="tests"),
        fenced.delete(NAMESPACE, key.name),
        fenced.scale(NAMESPACE, key.name, "", 1, manager="tests"),
    ):
        with pytest.raises(Unavailable, match="namespaces"):
            await write
    assert "labels" not in (await cluster.get(NAMESPACE, "n"))["metadata"]
