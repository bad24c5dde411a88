"""Leader election: at most one holder, by its local clock."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest

from clusters.base.errors import Unavailable
from clusters.base.objects import LEASE, SECRET
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.lease import LeaderLease, LeaseLost
from tests.support.clock import SteppedClock
from tests.support.wait import eventually


class Silent:
    """A cluster that can be made to refuse, or never to answer, writes."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.refuses = False
        self.hangs = False
        self.swallows = False
        self.silent_reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def patch(self, *arguments: Any, **keywords: Any) -> Any:
        """The real patch, unless in trouble."""
        if self.refuses:
            raise Unavailable("down")
        if self.hangs:
            await asyncio.Event().wait()
        answer = await self._cluster.patch(*arguments, **keywords)
        if self.swallows:
            self.swallows = False
            await asyncio.Event().wait()
        return answer

    async def get(self, *arguments: Any, **keywords: Any) -> Any:
        """The real get, unless it is one of those without an answer."""
        if self.silent_reads:
            self.silent_reads -= 1
            await asyncio.Event().wait()
        return await self._cluster.get(*arguments, **keywords)


def candidate(cluster: Any, identity: str, clock: SteppedClock) -> LeaderLease:
    """One candidate for the tests' lease."""
    return LeaderLease(cluster, "leader", "knodel", identity, clock)


async def leading(cluster: EmbeddedCluster) -> tuple[SteppedClock, Silent, LeaderLease, asyncio.Task[None]]:
    """Its clock, the cluster as it sees it, a holder, and its holding."""
    clock, silent = SteppedClock(), Silent(cluster)
    first = candidate(silent, "one", clock)
    await first.acquire()
    return clock, silent, first, asyncio.create_task(first.hold())


async def step(cluster: EmbeddedCluster, clock: SteppedClock, seconds: int) -> None:
    """Move the time second by second, and let everybody act on each."""
    for _ in range(seconds):
        await settle(cluster)
        clock.step(1)
    await settle(cluster)


async def settle(cluster: EmbeddedCluster) -> None:
    """Let everybody act: writes are answered in order, so after a write of ours theirs are answered too."""
    for _ in range(3):
        for _ in range(10):
            await asyncio.sleep(0)
        probe = {"metadata": {"name": "probe", "namespace": "tests"}}
        await cluster.create(SECRET, probe, manager="tests", dry_run=True)


async def test_the_first_candidate_leads_and_the_second_waits(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    first, second = candidate(cluster, "one", clock), candidate(cluster, "two", clock)
    assert await first.acquire() == 0
    assert first.valid
    waiting = asyncio.create_task(second.acquire())
    holding = asyncio.create_task(first.hold())
    await step(cluster, clock, 60)
    assert not waiting.done() and not holding.done()
    assert first.valid and not second.valid
    waiting.cancel()
    holding.cancel()


async def test_a_holder_that_died_is_followed_after_its_duration(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    first, second = candidate(cluster, "one", clock), candidate(cluster, "two", clock)
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await step(cluster, clock, 14)
    assert not waiting.done()
    assert not first.valid  # it stops before another may start
    await step(cluster, clock, 6)
    assert await waiting == 1
    assert second.valid


async def test_a_released_lease_is_taken_at_the_next_look(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    first, second = candidate(cluster, "one", clock), candidate(cluster, "two", clock)
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await settle(cluster)
    await first.release()
    assert not first.valid
    await step(cluster, clock, 5)
    assert await waiting == 1


@pytest.mark.fault("K8")
async def test_a_stopped_holder_finds_out_when_it_goes_on(cluster: EmbeddedCluster) -> None:
    ours, theirs = SteppedClock(), SteppedClock()
    first, second = candidate(cluster, "one", ours), candidate(cluster, "two", theirs)
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    waiting = asyncio.create_task(second.acquire())
    await step(cluster, theirs, 20)  # the first process gets no time
    assert await waiting == 1
    ours.step(20)
    assert not first.valid
    with pytest.raises(LeaseLost):
        await holding


@pytest.mark.fault("K8")
async def test_a_holder_that_was_replaced_hears_it_at_its_next_renewal(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    first = candidate(cluster, "one", clock)
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    patch = {"spec": {"holderIdentity": "two", "leaseTransitions": 1}}
    await cluster.patch(LEASE, "leader", patch, "knodel", manager="t")
    await step(cluster, clock, 5)
    with pytest.raises(LeaseLost, match="the holder is 'two'"):
        await holding
    assert not first.valid


async def test_a_deleted_lease_is_lost(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    first = candidate(cluster, "one", clock)
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    await cluster.delete(LEASE, "leader", "knodel")
    await step(cluster, clock, 5)
    with pytest.raises(LeaseLost, match="deleted"):
        await holding


async def test_somebody_elses_label_does_not_cost_the_lead(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    first = candidate(cluster, "one", clock)
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    await cluster.patch(LEASE, "leader", {"metadata": {"labels": {"a": "b"}}}, "knodel", manager="t")
    await step(cluster, clock, 30)
    assert first.valid and not holding.done()
    holding.cancel()


@pytest.mark.parametrize("trouble", ["refuses", "hangs"])
async def test_a_silent_cluster_costs_the_lead_before_another_can_have_it(
    cluster: EmbeddedCluster, trouble: str
) -> None:
    clock, silent, _, holding = await leading(cluster)
    await step(cluster, clock, 5)
    setattr(silent, trouble, True)
    await step(cluster, clock, 9)
    assert not holding.done()
    await step(cluster, clock, 1)
    with pytest.raises(LeaseLost, match="not renewed"):
        await holding


async def test_a_short_silence_costs_nothing(cluster: EmbeddedCluster) -> None:
    clock, silent, first, holding = await leading(cluster)
    silent.refuses = True
    await step(cluster, clock, 7)
    silent.refuses = False
    await step(cluster, clock, 30)
    assert first.valid and not holding.done()
    holding.cancel()


async def test_one_renewal_without_an_answer_costs_nothing(cluster: EmbeddedCluster) -> None:
    clock, silent, first, holding = await leading(cluster)
    await step(cluster, clock, 3)
    silent.hangs = True
    await step(cluster, clock, 5)
    silent.hangs = False  # what is on its way stays there
    await step(cluster, clock, 30)
    assert first.valid and not holding.done()
    holding.cancel()


@pytest.mark.fault("K9")
async def test_wall_clocks_are_never_compared(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    far_away = SteppedClock(clock.now() + timedelta(days=30))
    first, second = candidate(cluster, "one", clock), candidate(cluster, "two", far_away)
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await step(cluster, far_away, 10)
    assert not waiting.done()
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting


async def test_of_many_candidates_exactly_one_leads(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    candidates = [candidate(cluster, f"c{n}", clock) for n in range(10)]
    waiting = [asyncio.create_task(one.acquire()) for one in candidates]
    await eventually(lambda: any(task.done() for task in waiting))
    await step(cluster, clock, 6)
    assert sum(one.valid for one in candidates) == 1
    for task in waiting:
        task.cancel()


def test_a_renewal_period_that_leaves_no_second_chance_is_refused(cluster: EmbeddedCluster) -> None:
    with pytest.raises(ValueError, match="renew_every"):
        LeaderLease(cluster, "l", "ns", "one", SteppedClock(), duration=15, renew_every=8)


async def test_a_dead_holders_lease_is_taken_though_somebody_keeps_labelling_it(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    first, second = candidate(cluster, "one", clock), candidate(cluster, "two", clock)
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    for number in range(10):
        await cluster.patch(LEASE, "leader", {"metadata": {"labels": {"a": str(number)}}}, "knodel", manager="t")
        await step(cluster, clock, 3)
    assert waiting.done()


async def test_a_lease_that_lost_its_count_does_no_harm(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    first = candidate(cluster, "one", clock)
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    await cluster.patch(LEASE, "leader", {"spec": {"leaseTransitions": None}}, "knodel", manager="t")
    await step(cluster, clock, 30)
    assert first.valid and not holding.done()
    holding.cancel()
