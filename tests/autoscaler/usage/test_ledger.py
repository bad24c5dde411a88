"""Usage annotations that a real autoscaler writes on a real embedded cluster, and continues from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from autoscaler.config import AutoscalerSettings, Records
from autoscaler.metrics.signals import Signals
from autoscaler.metrics.stat import Sample, Tokens
from autoscaler.types import Policy
from autoscaler.usage.ledger import UsageLedger
from autoscaler.usage.meter import CANARY_ANNOTATION, Spent, read_usage
from autoscaler.usage.pools import PoolUsageLedger
from autoscaler.usage.signals import read_signals
from autoscaler.warmpool.claims.marks import ANNOTATION_CLAIM, LABEL_POOL
from clusters.base.objects import LABEL_CONFIGURATION, POD, POD_AUTOSCALER, WARM_POOL, Key, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informers
from tests.autoscaler.world import REVISION_NAME, World, running
from tests.support.clock import SteppedClock
from tests.support.loops import at_work
from tests.support.wait import eventually

SOON = Records(usage_interval=1.0)
SIGNALS = Signals(0.5, 0.25)
CLOCK = datetime(2026, 1, 1, tzinfo=UTC)
DEPLOYMENT: Object = {"spec": {"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}}}}


@pytest.fixture
async def world(cluster: EmbeddedCluster) -> AsyncIterator[World]:
    async with running(World(cluster, SteppedClock())) as world:
        yield world


def total(obj: Object) -> Spent:
    """Return the total usage on the object."""
    return sum((spent for one in read_usage(obj).meters for spent in one.days.values()), Spent())


async def serving(world: World) -> str:
    await world.create_revision(Policy(min_replicas=1))
    await world.until(world.mode, "Proxy")
    pod = await world.start_pod()
    await world.until(world.mode, "Serve")
    return pod


async def written(world: World, at_least: float) -> Spent:
    """Return the PodAutoscaler's usage once it covers so many pod-seconds; ticks may be late."""

    async def enough() -> bool:
        await world.pass_time(1.0)
        return total(await world.pod_autoscaler()).pod_seconds >= at_least

    await eventually(enough)
    return total(await world.pod_autoscaler())


async def test_a_revision_tells_what_its_replicas_held_and_for_what(cluster: EmbeddedCluster) -> None:
    async with running(World(cluster, SteppedClock(), AutoscalerSettings(records=SOON))) as world:
        pod = await serving(world)
        await world.pass_time(10.0)
        world.replicas.work(pod, 3.0)
        await world.pass_time(20.0)
        world.replicas.work(pod, 0.0)
        await world.pass_time(90.0)
        spent = await written(world, 118.0)
        assert spent.serving == pytest.approx(20.0, abs=1.5)
        assert spent.pod_seconds == pytest.approx(world.clock.monotonic(), abs=3.0)
        assert (spent.starting, spent.canary) == (0.0, 0.0)


async def test_a_new_autoscaler_goes_on_counting_the_tokens_of_a_language_model(cluster: EmbeddedCluster) -> None:
    settings = AutoscalerSettings(records=SOON)

    async def counted(world: World, prompt: float, completion: float) -> None:
        async def enough() -> bool:
            await world.pass_time(1.0)
            found = total(await world.pod_autoscaler())
            return (found.prompt_tokens, found.completion_tokens) == (prompt, completion)

        await eventually(enough)

    async with running(World(cluster, SteppedClock(), settings)) as world:
        pod = await serving(world)
        world.replicas.tokens[pod] = Tokens(700.0, 300.0)
        await counted(world, 700.0, 300.0)
    async with running(World(cluster, SteppedClock(), settings)) as world:
        world.replicas.tokens[pod] = Tokens(800.0, 350.0)  # 150 of them while no autoscaler ran

        async def read_twice() -> bool:
            await world.pass_time(1.0)
            return world.replicas.asked >= 2

        await eventually(read_twice)
        world.replicas.tokens[pod] = Tokens(807.0, 353.0)
        await counted(world, 707.0, 303.0)


async def test_it_is_written_once_a_minute_and_not_at_all_while_nothing_is_held(world: World) -> None:
    pod = await serving(world)
    await world.pass_time(130.0)
    first = await written(world, 110.0)
    await world.pass_time(20.0)
    assert total(await world.pod_autoscaler()) == first
    await world.stop_pod(pod)
    await world.pass_time(120.0)
    before = (await world.pod_autoscaler())["metadata"]["annotations"]
    await world.pass_time(300.0)
    assert (await world.pod_autoscaler())["metadata"]["annotations"] == before


def pod_autoscaler(name: str, **annotations: str) -> Object:
    labels = {LABEL_CONFIGURATION: "magika"}
    return {"metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": annotations}}


def replica(name: str) -> Object:
    conditions = [{"type": "Ready", "status": "True"}]
    created = "2025-12-31T23:00:00Z"
    metadata = {"name": name, "namespace": "default", "creationTimestamp": created}
    return {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"conditions": conditions}}


async def test_a_new_process_goes_on_from_what_is_written(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock(CLOCK)
    stored = await cluster.create(POD_AUTOSCALER, pod_autoscaler("magika-00001"), manager="test")
    first = UsageLedger(cluster, clock, SOON, "test")
    first.observe(stored, DEPLOYMENT, [replica("a")])
    clock.step(40.0)
    assert await first.write(stored) is None  # ticks read a ready replica, and tell when it is due

    stored = await cluster.get(POD_AUTOSCALER, "magika-00001", "default")
    assert total(stored) == Spent(idle=40.0)
    clock.step(100.0)  # nobody counts
    second = UsageLedger(cluster, clock, SOON, "test")
    second.observe(stored, DEPLOYMENT, [replica("a")])
    clock.step(10.0)
    await second.write(stored)
    stored = await cluster.get(POD_AUTOSCALER, "magika-00001", "default")
    assert total(stored) == Spent(idle=150.0)
    assert read_usage(stored).meters[0].replica == {"cpu": 2.0}


async def test_the_bill_of_a_revision_that_is_gone_stays_with_its_configuration(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock(CLOCK)
    ledger = UsageLedger(cluster, clock, SOON, "test")
    old, new = [await cluster.create(POD_AUTOSCALER, pod_autoscaler(f"magika-{n}"), manager="test") for n in (1, 2)]
    ledger.observe(old, DEPLOYMENT, [replica("a")])
    ledger.observe(new, DEPLOYMENT, [])
    clock.step(30.0)
    ledger.observe(old, DEPLOYMENT, [])
    ledger.forget(Key("default", "magika-1"))
    await ledger.write(new)
    assert total(await cluster.get(POD_AUTOSCALER, "magika-2", "default")) == Spent(idle=30.0)


async def test_what_serving_calls_a_canary_is_accounted_as_one(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock(CLOCK)
    ledger = UsageLedger(cluster, clock, SOON, "test")
    stored = await cluster.create(POD_AUTOSCALER, pod_autoscaler("m-1", **{CANARY_ANNOTATION: "true"}), manager="test")
    ledger.observe(stored, DEPLOYMENT, [replica("a")])
    clock.step(30.0)
    ledger.record_claim(Key("default", "m-1"))
    ledger.observe(pod_autoscaler("m-1"), DEPLOYMENT, [replica("a")])
    clock.step(5.0)
    await ledger.write(stored)
    assert total(await cluster.get(POD_AUTOSCALER, "m-1", "default")) == Spent(idle=5.0, canary=30.0, claims=1.0)


async def test_free_members_are_on_the_account_of_their_pool_until_they_are_claimed(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock(CLOCK)
    informers = Informers(cluster)
    ledger = PoolUsageLedger(cluster, informers[WARM_POOL], clock, SOON, "test")
    informers[POD].subscribe(ledger.on_pod)
    pool: Any = {"metadata": {"name": "small", "namespace": "default"}, "spec": {"template": {}}}
    await cluster.create(WARM_POOL, pool, manager="test")
    async with at_work(informers.run()):
        await informers.synced()
        for name in ("a", "b"):
            member = replica(name)
            member["metadata"] |= {"labels": {LABEL_POOL: "small"}, "annotations": {ANNOTATION_CLAIM: ""}}
            member["spec"]["containers"] = [{"name": "server", "resources": {"requests": {"cpu": "1"}}}]
            created = await cluster.create(POD, member, manager="test")
            await cluster.patch(
                POD, name, {"status": member["status"]}, "default", manager="test", subresource="status"
            )
            assert created["metadata"]["labels"] == {LABEL_POOL: "small"}

        async def seen() -> bool:
            return len(informers[POD]) == 2 and all(
                (pod.get("status") or {}).get("conditions") for pod in informers[POD]
            )

        await eventually(seen)
        await ledger.write()
        clock.step(60.0)
        await cluster.patch(
            POD, "a", {"metadata": {"annotations": {ANNOTATION_CLAIM: "{}"}}}, "default", manager="test"
        )

        async def claimed() -> bool:
            pod = informers[POD].get("a", "default")
            return pod is not None and pod["metadata"]["annotations"][ANNOTATION_CLAIM] == "{}"

        await eventually(claimed)
        clock.step(60.0)
        await ledger.write()
        stored = await cluster.get(WARM_POOL, "small", "default")
    assert total(stored) == Spent(idle=180.0)
    assert read_usage(stored).meters[0].replica == {"cpu": 1.0}
    assert REVISION_NAME not in stored["metadata"].get("annotations", {})


async def test_accounts_are_not_all_written_at_once_when_the_autoscaler_starts(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock(CLOCK)
    ledger = UsageLedger(cluster, clock, Records(), "test")
    made = [await cluster.create(POD_AUTOSCALER, pod_autoscaler(f"m-{n}"), manager="test") for n in range(40)]
    waits = []
    for one in made:
        ledger.observe(one, DEPLOYMENT, [replica("a") | {"status": {}}])  # it starts, so no tick reads it
        waits.append(await ledger.write(one))
    assert all(0.0 < wait <= 60.0 for wait in waits if wait is not None)
    assert len({round(wait / 10.0) for wait in waits if wait is not None}) >= 5


async def test_the_use_of_gpus_is_written_with_the_account(world: World) -> None:
    await serving(world)
    autoscaler = await world.pod_autoscaler()
    ledger = UsageLedger(world.cluster, world.clock, SOON, "test")
    deployment: Object = {"spec": {"template": {"spec": {"containers": []}}}}
    pods = (await world.cluster.list(POD, "default")).items
    ledger.observe(autoscaler, deployment, pods)
    ledger.record_readings(
        [Key("default", REVISION_NAME)], lambda _: {"pod": Sample(0.0, 0.0, 0.0, 0.0, 0.0, signals=SIGNALS)}
    )
    world.clock.step(5.0)
    await ledger.write(autoscaler)
    assert read_signals(await world.pod_autoscaler(), world.clock.now()) == SIGNALS
