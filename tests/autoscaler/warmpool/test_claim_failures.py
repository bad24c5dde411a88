"""Members that die, hang or reject the call, and cluster errors before, during and after each step."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from autoscaler.warmpool.claims.marks import LABEL_POOL
from clusters.base.errors import ClusterError, Conflict, FieldError, Forbidden, Invalid, Unavailable
from clusters.base.objects import (
    POD,
    Kind,
    Object,
)
from tests.autoscaler.warmpool.process import Process, running
from tests.autoscaler.warmpool.world import NAMESPACE, SETTINGS, World


@pytest.mark.fault("W1")
async def test_a_member_that_does_not_take_the_model_is_deleted_and_the_next_one_serves(
    world: World, process: Process
) -> None:
    key = await world.deploy()
    dead, alive = await world.members(2)
    world.caller.failing = {dead}
    await process.caught_up()
    assert await process.start(key, 1) == 1
    assert await world.of(key) >= {alive}
    assert dead not in await world.names()
    assert [(step.step, step.pod) for step in world.steps if not step.ok] == [("assign", dead)]


@pytest.mark.fault("W1")
async def test_when_all_members_fail_the_replica_starts_cold(world: World, process: Process) -> None:
    key = await world.deploy()
    world.caller.failing = set(await world.members(3))
    await process.caught_up()
    assert await process.start(key, 1) == 0
    assert not await world.names(LABEL_POOL)
    await world.followed(key, 1)


async def test_a_model_that_no_server_takes_costs_one_member_not_all(
    world: World, process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = await world.deploy(), await world.deploy("sound-00001")
    first, second, third = await world.members(3)
    world.caller.senseless = {broken.name}
    await process.caught_up()
    assert await process.start(broken, 1) == 0
    await process.caught_up()
    assert await process.start(broken, 1) == 0
    assert await world.names(LABEL_POOL) == {second, third}
    assert [first] == world.caller.pods
    assert "start cold: small-0001 answers 400" in caplog.text
    assert await process.start(sound, 1) == 1
    process.claims.forget(broken)
    assert await process.start(broken, 1) == 0
    assert third in world.caller.pods


@pytest.mark.fault("W1")
async def test_a_member_that_hangs_until_the_deadline_is_the_last_one_tried_before_the_cold_start(
    world: World, process: Process
) -> None:
    key = await world.deploy()
    hanging, alive = await world.members(2)
    world.caller.failing = {hanging}

    async def deadline(pod: str) -> None:
        if pod == hanging:
            world.clock.step(SETTINGS.assign_timeout)

    world.caller.on_call = deadline
    await process.caught_up()
    assert await process.start(key, 1) == 0, "the cold start does not wait for yet another one"
    assert hanging not in await world.names()
    await process.caught_up()
    assert await process.start(key, 1) == 1
    assert await world.claimed() == {alive}


@pytest.mark.fault("W1")
async def test_a_member_that_dies_before_the_claim_is_passed_over(world: World, process: Process) -> None:
    key = await world.deploy()
    dead, alive = await world.members(2)
    await process.caught_up()
    await world.cluster.delete(POD, dead, NAMESPACE, grace_period=0)  # and the informer does not know
    assert await process.claims.begin(key, await world.deployment(key), 1) == 1
    assert await world.claimed() == {alive}


@pytest.mark.fault("W1")
async def test_a_member_that_is_deleted_during_the_load_call_is_passed_over(world: World, process: Process) -> None:
    key = await world.deploy()
    dying, alive = await world.members(2)

    async def die(pod: str) -> None:
        if pod == dying:
            await world.cluster.delete(POD, dying, NAMESPACE, grace_period=0)

    world.caller.on_call = die
    await process.caught_up()
    assert await process.start(key, 1) == 1
    assert await world.claimed() == {alive}


async def test_a_member_whose_status_was_written_since_is_claimed_all_the_same(world: World, process: Process) -> None:
    key = await world.deploy()
    (member,) = await world.members(1)
    await process.caught_up()
    found = await world.deployment(key)
    patch = {"status": {"message": "the informer does not know"}}
    await world.cluster.patch(POD, member, patch, NAMESPACE, manager="kubelet", subresource="status")
    assert await process.claims.begin(key, found, 1) == 1


class Refusing:
    """A cluster that answers patches of Pods with errors, in turn."""

    def __init__(self, world: World, *errors: ClusterError) -> None:
        self._cluster = world.cluster
        self._errors = list(errors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def patch(self, kind: Kind, name: str, patch: Any, *args: Any, **options: Any) -> Object:
        if self._errors and kind == POD:
            raise self._errors.pop(0)
        return await self._cluster.patch(kind, name, patch, *args, **options)


@pytest.mark.parametrize(
    "error",
    [
        Conflict("pods 'x': the test failed"),
        Invalid("pods 'x'", [FieldError("", "the patch cannot be applied")]),
        Unavailable("no answer"),
        Forbidden("not allowed"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_of_the_cluster_costs_a_member_at_most(world: World, error: ClusterError) -> None:
    key = await world.deploy()
    first, second = await world.members(2)
    async with running(world, Refusing(world, error)) as process:
        assert await process.start(key, 1) == 1
        await process.settled(key, 1)
    assert await world.of(key) <= {first, second}
    assert not await world.halves()


async def test_when_labelling_fails_the_member_is_deleted_since_it_holds_a_model(world: World) -> None:
    key = await world.deploy()
    await world.members(1)

    class Failing(Refusing):
        async def patch(self, kind: Kind, name: str, patch: Any, *args: Any, **options: Any) -> Object:
            if "labels" in str(patch):
                raise Unavailable("no answer")
            return await super().patch(kind, name, patch, *args, **options)

    async with running(world, Failing(world)) as process:
        assert await process.start(key, 1) == 0
    assert not await world.names(LABEL_POOL)


async def test_cancelling_a_claim_leaves_a_member_that_is_deleted_later(world: World, process: Process) -> None:
    key = await world.deploy()
    held = asyncio.Event()

    async def hold(_pod: str) -> None:
        held.set()
        await asyncio.Event().wait()

    world.caller.on_call = hold
    await world.members(1)
    await process.caught_up()
    task = asyncio.create_task(process.start(key, 1))
    await held.wait()
    assert await process.finish(key) is None, "a claim at work is left alone"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await process.finish(key) == pytest.approx(10, abs=1.1)
    assert len(await world.halves()) == 1
    world.clock.step(10)
    await process.finished(key)
    assert not await world.halves()
