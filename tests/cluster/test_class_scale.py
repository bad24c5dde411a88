"""How many replicas a plain Service of our class has: bounds, initial scale, load, and who is in its path."""

from __future__ import annotations

import asyncio

import pytest

from clusters.base.objects import POD
from tests.cluster.calling import Answers, Caller
from tests.cluster.plain import NAME, Plain

pytestmark = pytest.mark.usefixtures("autoscaler")

AT_ONCE = 7  # at two for a replica there is something to spare: peaks of readings are held
FULL_UP = "full"
WINDOW = {"window": "6s"}  # Knative's least
FULL = {"target-utilization-percentage": "100"}
IN_THE_PATH = {"never": "Serve", "always": "Proxy", "spare": "Serve", "short": "Proxy"}
BURSTS = {"never": "0", "always": "-1", "spare": "5", "short": "50"}  # of 10 slots


async def test_a_service_starts_with_the_scale_that_it_asks_for_and_keeps_its_bounds(
    plain: Plain, caller: Caller
) -> None:
    await asyncio.gather(
        plain.create("none", {"initial-scale": "0", **WINDOW}),
        plain.create("three", {"initial-scale": "3", "max-scale": "3", **WINDOW}),
        plain.create("two", {"min-scale": "2", "max-scale": "2", **WINDOW}),
    )
    await asyncio.gather(*(plain.ready(name) for name in ("none", "three", "two")))
    assert plain.most_asked("none-00001") == 0 and not plain.pods("none-00001")
    assert plain.most_ready("three-00001") == 3  # with fewer it was not Ready
    assert plain.asked("two-00001") == 2

    answers = Answers()
    await asyncio.gather(*(caller.ask(answers, "none") for _ in range(5)))
    assert answers.failures == []
    await asyncio.gather(plain.scaled(0, "three-00001"), plain.scaled(0, "none-00001"))
    assert plain.most_asked("three-00001") == 3
    assert plain.asked("two-00001") == plain.most_asked("two-00001") == 2


async def test_requests_at_once_bring_as_many_replicas_as_they_need_and_none_is_lost_when_they_go(
    plain: Plain, caller: Caller
) -> None:
    common = {"min-scale": "1", "target-burst-capacity": "0", **FULL, **WINDOW}
    await plain.create(NAME, {"target": "2", "max-scale": "6", **common})
    await plain.create(FULL_UP, {"target": "1", "max-scale": "2", **common})
    await asyncio.gather(plain.ready(), plain.ready(FULL_UP))
    async with caller.busy(AT_ONCE, ms=4_000) as slow, caller.busy(AT_ONCE, FULL_UP, ms=4_000) as many:
        await asyncio.gather(plain.scaled(4), plain.scaled(2, f"{FULL_UP}-00001"))
        await asyncio.gather(plain.running(4), plain.running(2, f"{FULL_UP}-00001"))
        await caller.rounds(slow, 2 * AT_ONCE)
        assert plain.asked() == 4  # on average, too
    async with caller.busy(2, ms=50) as quick:
        await plain.scaled(1)
        await plain.running(1)
    assert (slow.failures, many.failures, quick.failures) == ([], [], [])
    assert plain.most_asked(f"{FULL_UP}-00001") == 2
    assert plain.most_asked() <= 6  # readings of several replicas are not of one moment


async def test_the_burst_capacity_says_whether_the_activator_is_in_the_path(plain: Plain, caller: Caller) -> None:
    activators = await plain.cluster.list(POD, "knative-serving", "app=activator")
    proxy = {pod["status"]["podIP"] for pod in activators.items}

    async def settled(name: str, mode: str) -> None:
        revision = f"{name}-00001"
        await plain.until(lambda: plain.mode(revision) == mode)
        await plain.until(lambda: plain.backends(revision) == (proxy if mode == "Proxy" else plain.addresses(revision)))

    for name, burst in BURSTS.items():
        await plain.create(name, {"min-scale": "1", "target": "10", "target-burst-capacity": burst, **FULL, **WINDOW})
    await asyncio.gather(*(plain.ready(name) for name in BURSTS))
    for name, mode in IN_THE_PATH.items():
        await settled(name, mode)
    async with caller.busy(7, "spare", ms=1_000) as answers:  # 3 slots are free, 5 are to be
        await settled("spare", "Proxy")
    assert answers.failures == []
    await settled("spare", "Serve")
