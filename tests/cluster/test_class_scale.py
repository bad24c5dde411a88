"""How many replicas a plain Service of our class has: bounds, initial scale, load, and who is in its path."""

from __future__ import annotations

import asyncio

import pytest

from clusters.objects import POD
from tests.cluster.plain import Answers, Caller, Plain

pytestmark = pytest.mark.usefixtures("autoscaler")

AT_ONCE = 8
SLOW = 1_000  # ms


async def test_a_service_starts_with_the_scale_that_it_asks_for_and_keeps_its_bounds(
    plain: Plain, caller: Caller
) -> None:
    await asyncio.gather(
        plain.create("none", initial_scale="0", window="6s"),
        plain.create("three", initial_scale="3", max_scale="3", window="6s"),
        plain.create("two", min_scale="2", max_scale="2", window="6s"),
    )
    await asyncio.gather(*(plain.ready(name) for name in ("none", "three", "two")))
    assert plain.most_asked("none-00001") == 0 and not plain.pods("none-00001")
    assert len(plain.addresses("three-00001")) == 3  # ready with fewer it was not
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
    scaling = {"target": "2", "target_utilization_percentage": "100", "max_scale": "6", "min_scale": "1"}
    await plain.create(**scaling, window="6s", target_burst_capacity="0")
    await plain.ready()
    async with caller.busy(AT_ONCE, ms=SLOW) as answers:
        print("scaled", await plain.scaled(4, within=30), "running", await plain.running(4))
        await asyncio.sleep(8)  # more than a window: the number is right on average, too
        assert plain.asked() == 4
    assert answers.failures == []
    async with caller.busy(1, ms=50) as fewer:
        print("down", await plain.scaled(1))
        await plain.running(1)
    assert fewer.failures == []
    assert plain.most_asked() == 4
    print([one["spec"]["replicas"] for one in plain.history_of_scale()], max(answers.seconds), fewer.pods)


async def test_more_requests_than_the_most_replicas_hold_bring_no_more(plain: Plain, caller: Caller) -> None:
    await plain.create(target="1", target_utilization_percentage="100", max_scale="2", window="6s")
    await plain.ready()
    async with caller.busy(AT_ONCE, ms=SLOW) as answers:
        await plain.scaled(2)
        await plain.running(2)
    assert answers.failures == []
    assert plain.most_asked() == 2


async def test_the_burst_capacity_says_whether_the_activator_is_in_the_path(plain: Plain, caller: Caller) -> None:
    common = {"min_scale": "1", "window": "6s", "target": "10", "target_utilization_percentage": "100"}
    for name, burst in (("never", "0"), ("always", "-1"), ("spare", "5"), ("short", "50")):
        await plain.create(name, target_burst_capacity=burst, **common)
    await asyncio.gather(*(plain.ready(name) for name in ("never", "always", "spare", "short")))
    activators = {
        pod["status"]["podIP"] for pod in (await plain.cluster.list(POD, "knative-serving", "app=activator")).items
    }
    wanted = {"never": "Serve", "always": "Proxy", "spare": "Serve", "short": "Proxy"}
    for name, mode in wanted.items():
        revision = f"{name}-00001"
        await plain.until(lambda: plain.mode(revision) == mode)
        behind = activators if mode == "Proxy" else plain.addresses(revision)
        await plain.until(lambda: plain.backends(revision) == behind)
    async with caller.busy(7, "spare", ms=SLOW) as answers:  # 3 slots are free, 5 are to be
        await plain.until(lambda: plain.mode("spare-00001") == "Proxy")
        await plain.until(lambda: plain.backends("spare-00001") == activators)
    assert answers.failures == []
    await plain.until(lambda: plain.mode("spare-00001") == "Serve")
