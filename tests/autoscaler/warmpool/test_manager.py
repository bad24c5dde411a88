"""Members of a pool on a real embedded cluster: creation, claims, deletion, and status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from autoscaler.config import WarmStart
from autoscaler.metrics.collector import RevisionReading
from autoscaler.warmpool.claims.classes import pool_class
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.marks import ANNOTATION_CLAIM, ENV_TOKEN, LABEL_POOL, LABEL_POOL_CLASS
from autoscaler.warmpool.debounce import QUIET_TIME
from autoscaler.warmpool.sizing.arrivals import ClassKey
from clusters.base.objects import DEPLOYMENT, POD, WARM_POOL, Key, is_controlled_by, key_of, labels_of, name_of
from tests.autoscaler.warmpool.pool_world import KEY, POOL, SECRET, TEST, PoolWorld, full, pod_spec, pool_world
from tests.support.wait import eventually

HOUR = 3_600.0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[PoolWorld]:
    async with pool_world(tmp_path / "cluster.db") as made:
        yield made


async def test_members_are_the_seeds_pod_with_a_token_and_only_the_pools_labels(world: PoolWorld) -> None:
    pool = await world.pool(size=1)
    await world.seed()
    await (await world.process()).settle()
    (pod,) = await world.pods()
    deployment = await world.cluster.get(DEPLOYMENT, f"knodel-pool-{POOL}-00001-deployment", "default")
    template = deployment["spec"]["template"]
    assert name_of(pod).startswith(f"{POOL}-")
    assert labels_of(pod) == {LABEL_POOL: POOL, LABEL_POOL_CLASS: pool_class(template)}
    assert pod["metadata"]["annotations"] == {"knodel.dev/a": "b", ANNOTATION_CLAIM: ""}
    assert is_controlled_by(pod, pool)
    (reference,) = pod["metadata"]["ownerReferences"]
    assert reference["blockOwnerDeletion"] is True
    expected = pod_spec(f"knodel-pool-{POOL}-00001")
    expected["containers"][0]["env"].append({"name": ENV_TOKEN, "value": SECRET.sha256_for(key_of(pod))})
    assert pod["spec"] == expected
    assert template["spec"] == pod_spec(f"knodel-pool-{POOL}-00001")


async def test_a_pool_fills_and_its_status_follows(world: PoolWorld) -> None:
    await world.pool(size=3)
    await world.seed()
    process = await world.process()
    await process.settle()
    assert await world.numbers() == (3, 0, 3, 0)
    (condition,) = (await world.status())["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "Unknown", "Starting", "0 of 3 members are ready",
    )  # fmt: skip
    await world.become_ready()
    await process.settle()
    status = await world.status()
    assert await world.numbers() == (3, 3, 0, 0)
    assert status["conditions"][0]["status"] == "True"
    assert status["reasons"] == ["Fixed: the size is set to 3"]
    assert status["observedGeneration"] == 1


async def test_nothing_is_written_once_all_is_well_and_serving_s_part_is_never_touched(world: PoolWorld) -> None:
    await full(world)
    seed = {"status": {"seed": {"ready": True, "message": ""}}}
    await world.cluster.patch(WARM_POOL, POOL, seed, "default", manager=TEST, subresource="status")
    process = await world.process()
    await process.settle()
    assert process.gate.writes == []
    await world.change_pool(size=2)
    await process.settle()
    assert (await world.status())["seed"] == {"ready": True, "message": ""}
    assert process.gate.writes == ["delete Pod", "patch WarmPool"]


async def test_no_more_members_than_the_burst_start_at_once(world: PoolWorld) -> None:
    await world.pool(size=5)
    await world.seed()
    process = await world.process(settings=WarmStart(create_burst=2))
    for expected in (2, 4, 5):
        await process.settle()
        assert len(await world.names()) == expected
        await world.become_ready()


async def test_without_a_seed_nothing_happens_and_the_status_says_why(world: PoolWorld) -> None:
    await world.pool(size=2)
    process = await world.process()
    await process.settle()
    (condition,) = (await world.status())["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "NoSeed")
    assert await world.names() == set()
    await world.seed(words=("--name", "m"))
    await process.settle()
    assert "no container of knodel-pool-fast-00001-deployment has the argument --pool" in str(await world.status())
    assert await world.names() == set()


async def test_too_many_members_go_the_youngest_first(world: PoolWorld) -> None:
    members = await full(world, size=2)
    world.clock.step(10)
    process = await world.process()
    await world.change_pool(size=4)
    await process.settle()
    await world.become_ready()
    await world.change_pool(size=2)
    await process.settle()
    assert await world.names() == members


async def test_size_zero_empties_the_pool_but_claimed_members_stay(world: PoolWorld) -> None:
    members = sorted(await full(world))
    await world.claim(members[0])
    process = await world.process()
    await world.change_pool(size=0)
    await process.settle()
    assert await world.names() == {members[0]}
    assert await world.numbers() == (0, 0, 0, 1)
    assert (await world.status())["conditions"][0]["status"] == "True"


async def test_claimed_members_are_never_deleted_and_are_refilled(world: PoolWorld) -> None:
    members = sorted(await full(world, maxAge="1h"))
    for member in members:
        await world.claim(member)
    await world.restart(members[0])
    await world.report(members[1], phase="Failed")
    world.clock.step(2 * HOUR)
    await world.seed(generation=2, image="server:2")
    process = await world.process(keys=PoolKey.random())
    await process.settle()
    assert set(members) < await world.names()
    assert await world.numbers() == (3, 0, 3, 3)
    await world.change_pool(size=0)
    await process.settle()
    assert await world.names() == set(members)


async def test_who_claimed_a_member_has_a_moment_before_the_refill(world: PoolWorld) -> None:
    members = await full(world, size=1)
    process = await world.process()
    await process.settle()
    await world.claim(*members)
    assert await process.settle() == QUIET_TIME
    assert await world.names() == members
    world.clock.step(QUIET_TIME)
    await process.settle()
    assert members < await world.names()


async def test_a_member_that_is_claimed_in_this_moment_stays(world: PoolWorld) -> None:
    members = await full(world, size=1)
    process = await world.process()
    await process.stop()  # sees nothing any more: the claim neither
    await world.change_pool(size=0)
    stale = await world.process()
    (member,) = members
    await stale.stop()
    await world.claim(member)
    await stale.manager.reconcile(KEY)
    assert await world.names() == members


async def test_an_adopted_member_is_none_any_more(world: PoolWorld) -> None:
    members = sorted(await full(world))
    await world.claim(members[0])
    await world.adopt(members[0])
    process = await world.process()
    await process.settle()
    assert len(await world.names()) == 3
    assert await world.numbers() == (3, 2, 1, 0)
    await world.cluster.delete(WARM_POOL, POOL, "default")
    assert await eventually(lambda: _only(world, members[0]))
    assert await process.settle() is None


async def _only(world: PoolWorld, name: str) -> bool:
    await world.bury()
    return [name_of(pod) for pod in await world.pods()] == [name]


async def test_the_budget_counts_all_containers(world: PoolWorld) -> None:
    await world.pool(size=9, budget={"cpu": "1.1", "memory": "4Gi"})
    await world.seed()
    process = await world.process()
    await process.settle()
    assert len(await world.names()) == 2  # 525m each
    assert "Budget: a member requests 0.525 cores and 256 MiB, the budget holds 2" in (await world.status())["reasons"]


async def test_pools_of_the_same_name_in_two_namespaces_know_nothing_of_each_other(world: PoolWorld) -> None:
    await full(world)
    await world.pool(namespace="other", size=1)
    process = await world.process()
    await process.settle(Key("other", POOL))
    assert await world.names("other") == set()  # the seed is another namespace's
    await world.seed(namespace="other")
    await process.settle(Key("other", POOL))
    assert len(await world.names("other")) == 1
    await world.cluster.patch(WARM_POOL, POOL, {"spec": {"size": 0}}, "other", manager=TEST)
    await process.settle(Key("other", POOL))
    await process.settle()
    assert (len(await world.names("other")), len(await world.names())) == (0, 3)


async def test_a_size_of_auto_follows_the_starts_of_its_class(world: PoolWorld) -> None:
    await world.pool(size="auto", min=0, max=3)
    await world.seed()
    process = await world.process()
    await process.settle()
    assert await world.names() == set()
    deployment = await world.cluster.get(DEPLOYMENT, f"knodel-pool-{POOL}-00001-deployment", "default")
    same = pool_class(deployment["spec"]["template"])
    process.manager.record_start("default", "another", claimed=False)
    process.manager.record_start("other", same, claimed=False)
    assert len(process.manager.controller.queue) == 1  # the pool itself, when it was first seen
    await process.settle()
    assert await world.names() == set()
    for _ in range(2):
        process.manager.record_start("default", same, claimed=False)
    await process.settle()
    assert len(await world.names()) == 2
    world.clock.step(HOUR)
    await world.become_ready()
    await process.settle()
    assert await world.names() == set()
    assert "Quiet: no starts in the last hour: 0" in (await world.status())["reasons"]


async def test_a_size_of_auto_follows_the_plan_once_there_is_one(world: PoolWorld) -> None:
    await world.pool(size="auto", min=0, max=3)
    await world.seed()
    process = await world.process()
    deployment = await world.cluster.get(DEPLOYMENT, f"knodel-pool-{POOL}-00001-deployment", "default")
    where = ClassKey("default", pool_class(deployment["spec"]["template"]))
    models = [Key("default", f"model-{number}-00001") for number in range(40)]
    for model in models:
        process.keep.follow(model, where, None)
    for model in models * 3:
        for busy in (True, False):
            process.keep.observe({model: RevisionReading(float(busy), 0.0, 0.0, 0.0, busy, True)})
            world.clock.step(10.0)
    await process.settle()
    status = await world.status()
    assert len(await world.names()) == status["size"] == 3
    assert status["reasons"][0].startswith("Plan: ")
    assert all(process.keep.follow(model, where, None) for model in models)


async def test_without_a_pool_models_are_kept_as_usual_again(world: PoolWorld) -> None:
    await world.pool(size="auto")
    await world.seed()
    process = await world.process()
    await process.settle()
    deployment = await world.cluster.get(DEPLOYMENT, f"knodel-pool-{POOL}-00001-deployment", "default")
    where, model = ClassKey("default", pool_class(deployment["spec"]["template"])), Key("default", "model-00001")
    process.keep.follow(model, where, None)
    for busy in (True, False) * 40:
        process.keep.observe({model: RevisionReading(float(busy), 0.0, 0.0, 0.0, busy, True)})
        world.clock.step(30.0)
    await process.settle()
    assert process.keep.follow(model, where, None) is not None
    await world.cluster.delete(WARM_POOL, POOL, "default")
    await process.see()
    await process.manager.reconcile(KEY)
    assert process.keep.follow(model, where, None) is None


@pytest.mark.fault("A11")
async def test_a_member_that_cannot_be_scheduled_is_told_of_and_no_more_are_made(world: PoolWorld) -> None:
    await world.pool(size=9)
    await world.seed()
    process = await world.process()
    await process.settle()
    lacks = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: no cpu"}
    for name in await world.names():
        await world.report(name, phase="Pending", conditions=[lacks])
    for _ in range(5):
        world.clock.step(60)
        await process.settle()
    assert len(await world.names()) == 4
    assert "does not start: Unschedulable: 0/1 nodes: no cpu" in str((await world.status())["reasons"])


async def test_the_controller_wakes_for_pools_seeds_and_members(world: PoolWorld) -> None:
    process = await world.process()
    running = asyncio.create_task(process.manager.controller.run())
    await world.pool(size=2)
    await world.seed()
    assert await eventually(lambda: _has(world, 2))
    await world.become_ready()
    await eventually(lambda: _ready(world, 2))
    await world.cluster.delete(POD, sorted(await world.names())[0], "default")
    assert await eventually(lambda: _has(world, 2))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert process.manager.controller.failed == 0


async def _has(world: PoolWorld, number: int) -> bool:
    return len(await world.names()) == number


async def _ready(world: PoolWorld, number: int) -> bool:
    return (await world.status()).get("ready") == number
