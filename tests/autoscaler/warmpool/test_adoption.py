"""The second half of a claim: adoption where there is room, undoing of abandoned claims, and the reaper."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.warmpool.claims.marks import ANNOTATION_CLAIM, LABEL_POOL
from autoscaler.warmpool.claims.pods import ClaimRecord, claim_record_of
from autoscaler.warmpool.starts import WarmStarts
from clusters.base.errors import FieldError
from clusters.base.objects import (
    DEPLOYMENT,
    LABEL_REVISION,
    LABEL_TEMPLATE_HASH,
    POD,
    REPLICA_SET,
    Object,
    controller_of,
    labels_of,
)
from clusters.runtime.recorder import Recorder
from tests.autoscaler.warmpool.keeping import keep_warm
from tests.autoscaler.warmpool.process import Process, running
from tests.autoscaler.warmpool.world import KEYS, NAMESPACE, SETTINGS, World, deployment, playing
from tests.support.loops import at_work
from tests.support.wait import eventually


@contextlib.asynccontextmanager
async def reaping(world: World, process: Process) -> AsyncIterator[WarmStarts]:
    """Run the reaper beside the process's informers."""
    starts = WarmStarts(
        world.cluster,
        process.informers,
        process.pool_informers,
        caller=world.caller,
        keys=KEYS,
        clock=world.clock,
        settings=replace(SETTINGS, resync=0.05),
        recorder=Recorder(world.cluster, "test", world.clock),
        formats=lambda key: world.formats.get(key, "onnx"),
        log=world.steps.append,
        keep=keep_warm(world.clock),
    )
    _, reaper = starts.controllers
    async with at_work(reaper.run()):
        yield starts


async def empty_a_second_later(world: World) -> bool:
    """Advance the clock by a second; return whether no Pod is left."""
    world.clock.step(1)
    return not await world.names()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"revision": "r", "deployment": "d", "by": "b", "at": 3}', "[" * 100_000]
)
def test_a_claim_that_no_claimer_of_ours_wrote_is_none(text: str) -> None:
    assert claim_record_of({"metadata": {"annotations": {ANNOTATION_CLAIM: text}}}) is None


async def test_a_member_waits_for_room_and_is_deleted_when_there_is_none(world: World, process: Process) -> None:
    key = await world.deploy()
    (member,) = await world.members(1)
    await process.caught_up()
    assert await process.claims.begin(key, await world.deployment(key), 1) == 1
    left = await process.finish(key)  # the Deployment is not scaled
    assert left is not None and 0 < left <= 10
    assert await world.of(key) == {member}
    world.clock.step(10)
    await process.finish(key)
    assert await world.of(key) == set()


async def test_a_member_is_adopted_however_late_when_there_is_room(world: World, process: Process) -> None:
    key = await world.deploy()
    (member,) = await world.members(1)
    await process.caught_up()
    await process.start(key, 1)
    await world.followed(key, 1)
    world.clock.step(60)
    await process.settled(key, 1)
    assert await world.owned(key) == {member}


async def test_a_member_that_serves_outlives_a_replicaset_controller_that_is_down(tmp_path: Path) -> None:
    down = True

    def unmoved(before: Object | None, after: Object) -> list[FieldError]:
        scaled = before is not None and before["spec"] != after["spec"]
        return [FieldError("spec.replicas", "nobody is there to change it")] if down and scaled else []

    async with playing(tmp_path / "state.db", {REPLICA_SET: unmoved}) as world, running(world) as process:
        await world.pool()
        key = await world.deploy()
        (member,) = await world.members(1)
        await process.caught_up()
        assert await process.start(key, 1) == 1
        for _ in range(4):
            world.clock.step(SETTINGS.reap_after)
            assert await process.finish(key) is not None
            await process.claims.reap()
        assert await world.of(key) == {member}
        down = False
        await process.settled(key, 1)
        assert await world.owned(key) == {member}


async def test_a_member_that_its_replicaset_is_about_to_adopt_is_not_reaped(world: World, process: Process) -> None:
    key = await world.deploy()
    (member,) = await world.members(1)
    await process.caught_up()
    deployment_uid = (await world.deployment(key))["metadata"]["uid"]
    claim = ClaimRecord(key.name, deployment_uid, "a process that ended", world.clock.now()).to_json()
    hash_label = labels_of(await world.replica_set(key))[LABEL_TEMPLATE_HASH]
    labels = {LABEL_POOL: None, LABEL_REVISION: key.name, LABEL_TEMPLATE_HASH: hash_label}
    metadata = {"labels": labels, "annotations": {ANNOTATION_CLAIM: claim}, "ownerReferences": None}
    await world.cluster.patch(POD, member, {"metadata": metadata}, NAMESPACE, manager="test")
    await process.caught_up()
    await process.claims.reap()
    world.clock.step(60)
    await process.claims.reap()
    assert member in await world.names()


async def test_a_process_that_comes_late_does_not_delete_what_serves_before_the_scale_is_seen(world: World) -> None:
    key = await world.deploy()
    (member,) = await world.members(1)
    async with running(world) as former:
        assert await former.claims.begin(key, await world.deployment(key), 1) == 1
    world.clock.step(3_600)
    async with running(world) as process:
        found = await world.deployment(key)
        assert await process.claims.begin(key, found, 1) == 0, "it is provided already"
        await world.scale(key, 1)
        await process.claims.finish(key, found)  # neither it nor the ReplicaSet is seen scaled yet
        await process.claims.reap()
        await process.settled(key, 1)
    assert await world.owned(key) == {member}


async def test_a_member_does_not_take_the_place_of_a_replica_that_became_ready(world: World, process: Process) -> None:
    key = await world.deploy(replicas=1)
    (own,) = await eventually(lambda: world.of(key))
    await world.members(1)
    await process.caught_up()
    assert await process.claims.begin(key, await world.deployment(key), 1) == 1
    await world.report(own)
    assert await process.finish(key) is not None
    assert await world.owned(key) == {own}
    world.clock.step(10)
    await process.finished(key)
    assert await world.of(key) == {own}


async def test_a_second_replica_is_claimed_beside_the_one_that_serves(world: World, process: Process) -> None:
    key = await world.deploy(replicas=1)
    (own,) = await eventually(lambda: world.of(key))
    await world.report(own)
    member, _ = await world.members(2)
    await process.caught_up()
    assert await process.start(key, 2) == 1
    await process.settled(key, 2)
    assert await world.owned(key) == {own, member}


async def test_a_member_of_a_former_template_is_deleted_not_adopted(world: World, process: Process) -> None:
    key = await world.deploy()
    await world.members(1)
    await process.caught_up()
    await process.start(key, 1)
    container = (await world.deployment(key))["spec"]["template"]["spec"]["containers"][0]
    patch = {"spec": {"template": {"spec": {"containers": [{**container, "image": "server:2"}]}}}}
    await world.cluster.patch(DEPLOYMENT, f"{key.name}-deployment", patch, NAMESPACE, manager="test")
    await process.finished(key)
    assert not await world.names(LABEL_POOL)


async def test_a_quota_that_refuses_the_replicasets_own_pods_does_not_stop_the_claim(tmp_path: Path) -> None:
    def quota(before: Object | None, after: Object) -> list[FieldError]:
        owner = controller_of(after)
        if before is None and owner is not None and owner["kind"] == "ReplicaSet":
            return [FieldError("", "exceeded quota: pods")]
        return []

    async with playing(tmp_path / "state.db", {POD: quota}) as world, running(world) as process:
        await world.pool()
        key = await world.deploy()
        members = await world.members(2)
        await process.caught_up()
        assert await process.start(key, 2) == 2
        await process.settled(key, 2)
        assert await world.owned(key) == set(members)


async def test_members_of_a_revision_that_is_gone_are_deleted(world: World, process: Process) -> None:
    key = await world.deploy()
    await world.members(1)
    await process.caught_up()
    await process.claims.begin(key, await world.deployment(key), 1)
    await world.cluster.delete(DEPLOYMENT, f"{key.name}-deployment", NAMESPACE)
    process.claims.forget(key)
    await process.caught_up()
    left = await process.claims.reap()
    assert left == pytest.approx(10)
    world.clock.step(10)
    assert await process.claims.reap() is None
    assert not await world.names()


async def test_the_reaper_leaves_to_finish_what_serves_and_deletes_what_finish_forgot(
    world: World, process: Process
) -> None:
    key = await world.deploy()
    await world.members(1)
    await process.caught_up()
    await process.claims.begin(key, await world.deployment(key), 1)
    await process.caught_up()
    assert await process.claims.reap() == pytest.approx(20)
    world.clock.step(19)
    assert await process.claims.reap() == pytest.approx(1)
    world.clock.step(1)
    assert await process.claims.reap() is None
    assert not await world.names()


async def test_a_member_whose_replicaset_went_before_it_could_adopt_is_deleted(world: World, process: Process) -> None:
    key = await world.deploy()
    (member,) = await world.members(1)
    await process.caught_up()
    await process.claims.begin(key, await world.deployment(key), 1)
    await world.cluster.delete(DEPLOYMENT, f"{key.name}-deployment", NAMESPACE)
    labels = {LABEL_POOL: None, LABEL_TEMPLATE_HASH: "gone"}
    patch = {"metadata": {"labels": labels, "ownerReferences": None}}
    await world.cluster.patch(POD, member, patch, NAMESPACE, manager="test")  # as the adoption leaves it
    await process.caught_up()
    await process.claims.reap()
    world.clock.step(10)
    await process.claims.reap()
    assert not await world.names()


async def test_the_reaper_runs_by_itself(world: World, process: Process) -> None:
    key = await world.deploy()
    await world.members(1)
    await process.caught_up()
    async with reaping(world, process) as starts:
        assert await starts.begin(key, await world.deployment(key), 1) == 1
        await world.cluster.delete(DEPLOYMENT, f"{key.name}-deployment", NAMESPACE)
        await eventually(lambda: empty_a_second_later(world))


async def test_the_reaper_finds_what_left_its_pool_and_was_adopted_by_nobody(world: World, process: Process) -> None:
    (member,) = await world.members(1)
    await process.caught_up()
    async with reaping(world, process):
        claim = ClaimRecord("iris-00001", "uid of a Deployment", "a process that ended", world.clock.now()).to_json()
        labels = {LABEL_POOL: None, LABEL_REVISION: "iris-00001", LABEL_TEMPLATE_HASH: "gone"}
        metadata = {"labels": labels, "annotations": {ANNOTATION_CLAIM: claim}, "ownerReferences": None}
        await world.cluster.patch(POD, member, {"metadata": metadata}, NAMESPACE, manager="test")
        await eventually(lambda: empty_a_second_later(world))


async def test_a_claim_that_cannot_be_read_is_nobodys_and_reaped(world: World, process: Process) -> None:
    (member,) = await world.members(1)
    patch = {"metadata": {"annotations": {ANNOTATION_CLAIM: "by hand"}}}
    await world.cluster.patch(POD, member, patch, NAMESPACE, manager="test")
    key = await world.deploy()
    await process.caught_up()
    assert await process.start(key, 1) == 0
    await process.claims.reap()
    world.clock.step(10)
    await process.claims.reap()
    assert member not in await world.names()


async def test_pods_of_others_are_left_alone(world: World, process: Process) -> None:
    await world.members(1)
    labels = {LABEL_REVISION: "iris-00001"}
    pod = {"metadata": {"name": "theirs", "namespace": NAMESPACE, "labels": labels}, "spec": deployment()["spec"]}
    await world.cluster.create(POD, pod, manager="test")
    key = await world.deploy()
    await process.caught_up()
    world.clock.step(100)
    await process.claims.reap()
    await process.finish(key)
    assert await world.names() == {"theirs", "small-0001"}
