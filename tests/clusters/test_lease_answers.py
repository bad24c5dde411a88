"""Leader election when a response is lost although the request was carried out."""

from __future__ import annotations

import asyncio

from clusters.base.objects import LEASE
from clusters.embedded.cluster import EmbeddedCluster
from tests.clusters.test_lease import Silent, candidate, leading, settle, step
from tests.support.clock import SteppedClock


async def test_a_candidate_does_not_wait_for_an_answer_that_never_comes(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    silent = Silent(cluster)
    silent.silent_reads = 1
    waiting = asyncio.create_task(candidate(silent, "one", clock).acquire())
    await step(cluster, clock, 20)
    assert waiting.done()


async def test_a_taking_whose_answer_is_lost_is_found_out_at_the_next_look(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    silent = Silent(cluster)
    first, second = candidate(cluster, "one", clock), candidate(silent, "two", clock)
    await first.acquire()
    await first.release()
    silent.swallows = True
    waiting = asyncio.create_task(second.acquire())
    await step(cluster, clock, 20)
    assert await waiting == 2
    assert second.valid


async def test_a_lease_is_given_back_when_the_answer_to_a_renewal_was_lost(cluster: EmbeddedCluster) -> None:
    clock, silent, first, holding = await leading(cluster)
    silent.swallows = True
    await step(cluster, clock, 6)
    holding.cancel()
    await settle(cluster)
    await first.release()
    assert (await cluster.get(LEASE, "leader", "knodel"))["spec"]["holderIdentity"] == ""


async def test_a_lease_that_somebody_else_took_is_not_given_back_for_him(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    first = candidate(cluster, "one", clock)
    await first.acquire()
    patch = {"spec": {"holderIdentity": "two", "leaseTransitions": 1}}
    await cluster.patch(LEASE, "leader", patch, "knodel", manager="t")
    await first.release()
    assert (await cluster.get(LEASE, "leader", "knodel"))["spec"]["holderIdentity"] == "two"
