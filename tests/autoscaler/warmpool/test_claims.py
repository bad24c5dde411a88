"""Claims on the embedded cluster, with its own Deployment and ReplicaSet controllers."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from autoscaler.warmpool.claims import Replicas, claims_wanted
from autoscaler.warmpool.keys import PoolKey
from autoscaler.warmpool.marks import ANNOTATION_CLAIM, ENV_TOKEN, LABEL_POOL
from clusters.errors import ClusterError, Conflict, FieldError, Forbidden, Invalid, Unavailable
from clusters.objects import (
    DEPLOYMENT,
    LABEL_REVISION,
    LABEL_TEMPLATE_HASH,
    POD,
    WARM_POOL,
    Key,
    Kind,
    Object,
    annotations_of,
    controller_of,
    labels_of,
    parse_timestamp,
)
from tests.autoscaler.warmpool.world import NAMESPACE, POOL, Process, World, deployment, playing, running
from tests.support.wait import eventually


async def settle(world: World, process: Process, key: Key, replicas: int) -> None:
    """Return when the revision has exactly these replicas, all owned."""
    await process.finished(key)

    async def settled() -> bool:
        return len(await world.of(key)) == replicas == len(await world.owned(key))

    await eventually(settled)


# --- one claim ---


async def test_a_claimed_member_serves_at_once_and_becomes_a_replica_that_the_replicaset_keeps(
    world: World, process: Process
) -> None:
    key = await world.deploy()
    (member,) = await world.members(1)
    await process.caught_up()
    assert process.claims.available(await world.deployment(key)) == 1

    assert await process.claims.begin(key, await world.deployment(key), 1) == 1
    serving = await world.pod(member)
    template = (await world.deployment(key))["spec"]["template"]["metadata"]
    assert template["labels"].items() <= labels_of(serving).items()
    assert template["annotations"].items() <= annotations_of(serving).items()
    assert LABEL_TEMPLATE_HASH not in labels_of(serving), "no ReplicaSet looks at it yet"
    assert process.claims.available(await world.deployment(key)) == 0

    await world.scale(key, 1)
    await settle(world, process, key, 1)
    adopted = await world.pod(member)
    assert (controller_of(adopted) or {})["kind"] == "ReplicaSet"
    assert len(adopted["metadata"]["ownerReferences"]) == 1
    assert LABEL_POOL not in labels_of(adopted)
    assert ANNOTATION_CLAIM in annotations_of(adopted)
    assert await world.of(key) == {member}, "the ReplicaSet's own pending Pod is gone"
    assert [(step.step, step.pod, step.ok) for step in world.steps] == [
        (step, member, True) for step in ("reserve", "assign", "label", "adopt")
    ]


async def test_the_member_is_told_the_model_and_the_token_that_its_environment_holds_the_hash_of(
    world: World, process: Process
) -> None:
    key = await world.deploy()
    (member,) = await world.members(1)
    await process.caught_up()
    await process.start(key, 1)
    ((pod, token, revision),) = world.caller.calls
    environment = {one["name"]: one["value"] for one in (await world.pod(member))["spec"]["containers"][0]["env"]}
    assert (pod, revision) == (member, key.name)
    assert hashlib.sha256(token.encode()).hexdigest() == environment[ENV_TOKEN]


async def test_as_many_members_as_are_missing_are_claimed_together_oldest_first(world: World, process: Process) -> None:
    key = await world.deploy()
    first, second, third = await world.members(3)
    await process.caught_up()
    assert await process.start(key, 2) == 2
    await settle(world, process, key, 2)
    assert await world.owned(key) == {first, second}
    assert await world.names(LABEL_POOL) == {third}


async def test_a_second_begin_before_the_first_one_is_seen_claims_nothing_more(world: World, process: Process) -> None:
    key = await world.deploy()
    await world.members(3)
    await process.caught_up()
    found = await world.deployment(key)
    assert [await process.claims.begin(key, found, 1) for _ in range(3)] == [1, 0, 0]


async def test_a_revision_without_members_starts_cold_at_once(world: World, process: Process) -> None:
    key = await world.deploy()
    assert await process.start(key, 1) == 0
    assert await process.finish(key) is None
    await world.followed(key, 1)


@pytest.mark.parametrize("load", ["", "{", "[]", '{"name": "iris"}', '{"name": "", "storageUri": "file:///m"}'])
async def test_nothing_is_claimed_for_a_template_that_does_not_say_what_to_load(
    world: World, process: Process, load: str
) -> None:
    key = await world.deploy(load=load)
    await world.members(1)
    await process.caught_up()
    assert await process.start(key, 1) == 0
    assert not await world.claimed()


# --- which members ---


async def test_members_that_differ_from_the_revision_are_never_taken(world: World, process: Process) -> None:
    await world.pool("other")
    key = await world.deploy()
    await world.members(1, image="server:2")
    await world.members(1, ready=False)
    await world.members(1, restarts=1)
    await world.members(1, keys=PoolKey(b"another process's own key"))
    await world.members(1, "other")
    await process.caught_up()
    assert process.claims.available(await world.deployment(key)) == 0
    assert await process.start(key, 1) == 0
    assert not world.caller.calls


async def test_namespaces_are_never_mixed(world: World, process: Process) -> None:
    await world.pool("other")
    mine, theirs = await world.deploy(), await world.deploy(namespace="other")
    await world.members(1, "other")
    await process.caught_up()
    assert await process.start(mine, 1) == 0
    assert await process.start(theirs, 1) == 1
    assert world.caller.calls[0][2] == theirs.name


async def test_a_member_older_than_its_pool_allows_is_not_taken(world: World, process: Process) -> None:
    key = await world.deploy()
    await world.cluster.patch(WARM_POOL, POOL, {"spec": {"maxAge": "1h"}}, NAMESPACE, manager="test")
    (member,) = await world.members(1)
    await process.caught_up()
    created = (await world.pod(member))["metadata"]["creationTimestamp"]
    world.clock.step(-(world.clock.now().timestamp() - parse_timestamp(created).timestamp()) + 3_599)
    assert process.claims.available(await world.deployment(key)) == 1
    world.clock.step(2)
    assert process.claims.available(await world.deployment(key)) == 0


async def test_a_member_of_a_pool_that_is_gone_is_not_taken(world: World, process: Process) -> None:
    key = await world.deploy()
    await world.members(1)
    await world.cluster.delete(WARM_POOL, POOL, NAMESPACE)
    await process.caught_up()
    assert process.claims.available(await world.deployment(key)) == 0


# --- how many ---


@pytest.mark.parametrize(
    ("desired", "replicas", "free", "wanted"),
    [
        (1, Replicas(cold=0, claimed=0, any_ready=False), 3, 1),
        (5, Replicas(cold=0, claimed=0, any_ready=False), 3, 3),
        (1, Replicas(cold=0, claimed=0, any_ready=False), 0, 0),
        (3, Replicas(cold=1, claimed=1, any_ready=True), 5, 1),
        (3, Replicas(cold=1, claimed=1, any_ready=True), 1, 0),  # the last one is for a revision at zero
        (4, Replicas(cold=1, claimed=0, any_ready=True), 3, 2),
        (1, Replicas(cold=0, claimed=1, any_ready=False), 5, 0),  # it crashes: it was provided all the same
        (1, Replicas(cold=3, claimed=2, any_ready=True), 5, 0),
        (0, Replicas(cold=0, claimed=0, any_ready=False), 5, 0),
    ],
)
def test_claims_are_wanted_for_what_neither_serves_nor_was_claimed(
    desired: int, replicas: Replicas, free: int, wanted: int
) -> None:
    assert claims_wanted(desired, replicas, free) == wanted


async def test_a_model_that_crashes_after_its_claim_takes_one_member_not_all(world: World, process: Process) -> None:
    key = await world.deploy()
    (member, *_) = await world.members(3)
    await process.caught_up()
    await process.start(key, 1)
    await world.report(member, ready=False, restarts=1)
    await process.finished(key)
    await process.caught_up()
    for _ in range(3):
        assert await process.start(key, 1) == 0
    assert await world.claimed() == {member}


async def test_a_revision_that_serves_leaves_the_last_member_to_one_at_zero(world: World, process: Process) -> None:
    serving, waiting = await world.deploy("iris-00001"), await world.deploy("wine-00001")
    await world.members(3)
    await process.caught_up()
    await process.start(serving, 1)
    await settle(world, process, serving, 1)
    await process.caught_up()
    assert await process.start(serving, 3) == 1
    assert await process.start(waiting, 1) == 1


# --- failures before, during and after a step ---


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


async def test_when_all_members_fail_the_replica_starts_cold(world: World, process: Process) -> None:
    key = await world.deploy()
    world.caller.failing = set(await world.members(3))
    await process.caught_up()
    assert await process.start(key, 1) == 0
    assert not await world.names(LABEL_POOL)
    await world.followed(key, 1)


async def test_a_member_that_hangs_until_the_deadline_is_the_last_one_tried_before_the_cold_start(
    world: World, process: Process
) -> None:
    key = await world.deploy()
    hanging, alive = await world.members(2)
    world.caller.failing = {hanging}

    async def deadline(pod: str) -> None:
        if pod == hanging:
            world.clock.step(0.5)

    world.caller.on_call = deadline
    await process.caught_up()
    assert await process.start(key, 1) == 0, "the cold start does not wait for yet another one"
    assert hanging not in await world.names()
    await process.caught_up()
    assert await process.start(key, 1) == 1
    assert await world.claimed() == {alive}


async def test_a_member_that_dies_before_the_claim_is_passed_over(world: World, process: Process) -> None:
    key = await world.deploy()
    dead, alive = await world.members(2)
    await process.caught_up()
    await world.cluster.delete(POD, dead, NAMESPACE, grace_period=0)  # and the informer does not know
    assert await process.claims.begin(key, await world.deployment(key), 1) == 1
    assert await world.claimed() == {alive}


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
    """Answers patches of Pods with errors, in turn."""

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
        await settle(world, process, key, 1)
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


# --- adoption ---


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
    await settle(world, process, key, 1)
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
    await settle(world, process, key, 2)
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
        await settle(world, process, key, 2)
        assert await world.owned(key) == set(members)


# --- the reaper ---


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
