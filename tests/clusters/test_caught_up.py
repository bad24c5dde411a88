"""A new leader acts only after its informers have observed the last writes of the former leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from clusters.base.api import ObjectList, WatchEvent
from clusters.base.errors import ClusterError, Forbidden, Unavailable
from clusters.base.objects import MODEL, SECRET
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informer, Informers
from tests.clusters.test_informer import Troubled, make, names, running
from tests.support.clock import SteppedClock
from tests.support.wait import eventually


@pytest.mark.fault("K10")
async def test_a_new_leader_waits_until_it_has_seen_what_the_cluster_holds(cluster: EmbeddedCluster) -> None:
    informer = Informer(cluster, SECRET)
    for name in ("a", "b"):
        await cluster.create(SECRET, {"metadata": {"name": name, "namespace": "n"}}, manager="tests")

    caught_up = asyncio.create_task(informer.caught_up())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not caught_up.done()  # nothing was listed yet

    running = asyncio.create_task(informer.run())
    await asyncio.wait_for(caught_up, 5)
    assert len(informer) == 2
    running.cancel()


@pytest.mark.parametrize("error", [Unavailable("down"), Forbidden("not yet"), ClusterError("server error")])
async def test_a_new_leader_waits_until_the_cluster_lets_it_look(cluster: EmbeddedCluster, error: ClusterError) -> None:
    troubled, clock = Troubled(cluster), SteppedClock()
    informer = Informer(troubled, MODEL, clock=clock)
    async with running(informer):
        troubled.list_errors.append(error)
        caught_up = asyncio.create_task(informer.caught_up())
        await eventually(lambda: troubled.lists == 2)
        await asyncio.sleep(0)
        assert not caught_up.done()
        clock.step(5)
        await asyncio.wait_for(caught_up, 5)


@pytest.mark.parametrize("change", ["made", "changed", "deleted"])
async def test_a_new_leader_whose_watch_is_dead_does_not_act_on_what_it_holds(
    cluster: EmbeddedCluster, change: str
) -> None:
    troubled, clock = Troubled(cluster), SteppedClock()
    dead = asyncio.Event()
    await make(cluster, "a")

    async def watch(*arguments: Any) -> AsyncIterator[WatchEvent]:
        await dead.wait()
        async for event in cluster.watch(*arguments):
            yield event

    troubled.watch = watch  # type: ignore[method-assign,assignment]
    informer = Informer(troubled, MODEL, clock=clock)
    async with running(informer):
        if change == "made":
            await make(cluster, "b")
        elif change == "changed":
            await cluster.patch(MODEL, "a", {"spec": {"x": 1}}, "ns", manager="t")
        else:
            await cluster.delete(MODEL, "a", "ns")
        caught_up = asyncio.create_task(informer.caught_up())
        await looking(clock, 20)
        assert not caught_up.done()
        dead.set()
        await looking(clock, 5)
        await asyncio.wait_for(caught_up, 5)


async def test_a_new_leader_does_not_wait_for_what_was_deleted_meanwhile(cluster: EmbeddedCluster) -> None:
    troubled, clock = Troubled(cluster), SteppedClock()
    informer = Informer(troubled, MODEL, clock=clock)
    listed = await cluster.list(MODEL)
    await make(cluster, "a")
    listed = ObjectList((await cluster.list(MODEL)).items, listed.resource_version)
    await cluster.delete(MODEL, "a", "ns")
    async with running(informer):
        lists = [listed]

        async def list_(*arguments: Any, **others: Any) -> ObjectList:
            return lists.pop() if lists else await cluster.list(*arguments, **others)

        troubled.list = list_  # type: ignore[method-assign]
        caught_up = asyncio.create_task(informer.caught_up())
        await looking(clock, 3)
        await asyncio.wait_for(caught_up, 5)


async def looking(clock: SteppedClock, seconds: int) -> None:
    """Advance the clock in small steps."""
    for _ in range(seconds * 10):
        for _ in range(5):
            await asyncio.sleep(0)
        clock.step(0.1)


async def test_all_informers_catch_up(cluster: EmbeddedCluster) -> None:
    informers = Informers(cluster)
    assert not len(informers[MODEL]) and not len(informers[SECRET])
    await make(cluster, "a")
    async with running(informers):
        await asyncio.wait_for(informers.caught_up(), 5)
        assert names(informers[MODEL]) == {"a"}
