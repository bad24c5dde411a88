"""Claims on the embedded cluster, with its Deployment and ReplicaSet controllers: the number and choice of members."""

from __future__ import annotations

import hashlib
import json

import pytest

from autoscaler.warmpool.claims.claims import RevisionReplicas, claims_wanted
from autoscaler.warmpool.claims.keys import PoolKey
from autoscaler.warmpool.claims.marks import ENV_TOKEN, LABEL_POOL
from autoscaler.warmpool.claims.pods import is_claimed
from clusters.base.objects import (
    LABEL_TEMPLATE_HASH,
    WARM_POOL,
    annotations_of,
    controller_of,
    labels_of,
    parse_timestamp,
)
from tests.autoscaler.warmpool.process import Process
from tests.autoscaler.warmpool.world import LOAD, NAMESPACE, POOL, World

DIGEST, OTHER = (f"sha256:{digit * 64}" for digit in "ab")

# --- one claim ---


async def test_a_claimed_member_serves_at_once_and_becomes_a_replica_that_the_replicaset_keeps(
    world: World, process: Process
) -> None:
    key = await world.deploy()
    (member,) = await world.members(1)
    await process.caught_up()
    assert process.claims.available(key, await world.deployment(key)) == 1

    assert await process.claims.begin(key, await world.deployment(key), 1) == 1
    serving = await world.pod(member)
    template = (await world.deployment(key))["spec"]["template"]["metadata"]
    assert template["labels"].items() <= labels_of(serving).items()
    assert template["annotations"].items() <= annotations_of(serving).items()
    assert LABEL_TEMPLATE_HASH not in labels_of(serving), "no ReplicaSet looks at it yet"
    assert process.claims.available(key, await world.deployment(key)) == 0

    await world.scale(key, 1)
    await process.settled(key, 1)
    adopted = await world.pod(member)
    assert (controller_of(adopted) or {})["kind"] == "ReplicaSet"
    assert len(adopted["metadata"]["ownerReferences"]) == 1
    assert LABEL_POOL not in labels_of(adopted)
    assert is_claimed(adopted)
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
    await process.settled(key, 2)
    assert await world.owned(key) == {first, second}
    assert await world.names(LABEL_POOL) == {third}


async def test_a_second_begin_before_the_first_one_is_seen_claims_nothing_more(world: World, process: Process) -> None:
    key = await world.deploy()
    await world.members(3)
    await process.caught_up()
    found = await world.deployment(key)
    assert [await process.claims.begin(key, found, 1) for _ in range(3)] == [1, 0, 0]


@pytest.mark.fault("W5")
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


# --- what a member is held to ---


async def test_a_revision_that_promises_no_digest_claims_members_once_its_own_is_recorded(
    world: World, process: Process
) -> None:
    key = await world.deploy(records=True)
    (member,) = await world.members(1)
    await process.caught_up()
    assert await process.start(key, 1) == 0
    assert not await world.claimed()

    assert await process.claims.begin(key, await world.deployment(key), 1, DIGEST) == 1
    assert world.caller.pods == [member]
    assert world.caller.digests == [DIGEST]


async def test_a_promised_digest_is_what_a_member_is_held_to(world: World, process: Process) -> None:
    promised = await world.deploy(load=json.dumps({**LOAD, "digest": DIGEST}))
    await world.members(1)
    await process.caught_up()
    assert await process.start(promised, 1, digest=OTHER) == 1
    assert world.caller.digests == [DIGEST]


# --- which members ---


@pytest.mark.fault("W6")
async def test_members_that_differ_from_the_revision_are_never_taken(world: World, process: Process) -> None:
    await world.pool("other")
    key = await world.deploy()
    await world.members(1, image="server:2")
    await world.members(1, ready=False)
    await world.members(1, restarts=1)
    await world.members(1, keys=PoolKey(b"another process's own key"))
    await world.members(1, "other")
    await process.caught_up()
    assert process.claims.available(key, await world.deployment(key)) == 0
    assert await process.start(key, 1) == 0
    assert not world.caller.calls


@pytest.mark.parametrize(
    ("found", "members", "claimed"),
    [
        ("onnx", "", 1),
        ("onnx", "onnx", 1),
        ("sklearn", "sklearn", 1),
        ("sklearn", "", 0),  # a default pool: its members have imported ONNX Runtime
        ("onnx", "sklearn", 0),
        ("", "", 0),  # nothing is known of the revision's model yet
        ("", "sklearn", 0),
    ],
)
async def test_a_member_is_claimed_by_the_format_that_the_revisions_server_found(
    world: World, process: Process, found: str, members: str, claimed: int
) -> None:
    key = await world.deploy()
    world.formats[key] = found
    await world.members(1, model_format=members)
    await process.caught_up()
    assert process.claims.available(key, await world.deployment(key)) == claimed
    assert await process.start(key, 1) == claimed


async def test_a_member_that_serves_is_adopted_by_a_process_that_does_not_know_the_format_yet(
    world: World, process: Process
) -> None:
    key = await world.deploy()
    world.formats[key] = "sklearn"
    (member,) = await world.members(1, model_format="sklearn")
    await process.caught_up()
    assert await process.start(key, 1) == 1
    world.formats[key] = ""
    await process.settled(key, 1)
    assert await world.owned(key) == {member}


async def test_namespaces_are_never_mixed(world: World, process: Process) -> None:
    await world.pool("other")
    mine, theirs = await world.deploy(), await world.deploy(namespace="other")
    await world.members(1, "other")
    await process.caught_up()
    assert await process.start(mine, 1) == 0
    assert await process.start(theirs, 1) == 1
    assert world.caller.calls[0][2] == theirs.name


@pytest.mark.fault("W7")
async def test_a_member_older_than_its_pool_allows_is_not_taken(world: World, process: Process) -> None:
    key = await world.deploy()
    await world.cluster.patch(WARM_POOL, POOL, {"spec": {"maxAge": "1h"}}, NAMESPACE, manager="test")
    (member,) = await world.members(1)
    await process.caught_up()
    created = (await world.pod(member))["metadata"]["creationTimestamp"]
    world.clock.step(-(world.clock.now().timestamp() - parse_timestamp(created).timestamp()) + 3_599)
    assert process.claims.available(key, await world.deployment(key)) == 1
    world.clock.step(2)
    assert process.claims.available(key, await world.deployment(key)) == 0


async def test_a_member_of_a_pool_that_is_gone_is_not_taken(world: World, process: Process) -> None:
    key = await world.deploy()
    await world.members(1)
    await world.cluster.delete(WARM_POOL, POOL, NAMESPACE)
    await process.caught_up()
    assert process.claims.available(key, await world.deployment(key)) == 0


# --- how many ---


@pytest.mark.parametrize(
    ("desired", "replicas", "free", "wanted"),
    [
        (1, RevisionReplicas(cold=0, claimed=0, any_ready=False), 3, 1),
        (5, RevisionReplicas(cold=0, claimed=0, any_ready=False), 3, 3),
        (1, RevisionReplicas(cold=0, claimed=0, any_ready=False), 0, 0),
        (3, RevisionReplicas(cold=1, claimed=1, any_ready=True), 5, 1),
        (3, RevisionReplicas(cold=1, claimed=1, any_ready=True), 1, 0),  # the last one is for a revision at zero
        (4, RevisionReplicas(cold=1, claimed=0, any_ready=True), 3, 2),
        (1, RevisionReplicas(cold=0, claimed=1, any_ready=False), 5, 0),  # it crashes: it was provided all the same
        (1, RevisionReplicas(cold=3, claimed=2, any_ready=True), 5, 0),
        (0, RevisionReplicas(cold=0, claimed=0, any_ready=False), 5, 0),
    ],
)
def test_claims_are_wanted_for_what_neither_serves_nor_was_claimed(
    desired: int, replicas: RevisionReplicas, free: int, wanted: int
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


@pytest.mark.fault("W5")
async def test_a_revision_that_serves_leaves_the_last_member_to_one_at_zero(world: World, process: Process) -> None:
    serving, waiting = await world.deploy("iris-00001"), await world.deploy("wine-00001")
    await world.members(3)
    await process.caught_up()
    await process.start(serving, 1)
    await process.settled(serving, 1)
    await process.caught_up()
    assert await process.start(serving, 3) == 1
    assert await process.start(waiting, 1) == 1
