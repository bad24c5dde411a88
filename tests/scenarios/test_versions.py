"""Versions: deploy, split, tags, canary, promote, rollback, three at once, a broken one; no request fails meanwhile."""

from __future__ import annotations

import pytest

from clusters.base.objects import MODEL, REVISION, is_true
from serving.reconciler.rollout.commands import promote, rollback
from tests.scenarios.world import MANAGER, SOON, World, reason_of, traffic_of


async def test_a_model_answers_through_the_gateway(world: World) -> None:
    await world.deploy("hello", storageUri=world.artifacts("double"), minReplicas=1)

    answer = await world.ask("hello", value=21.0)

    assert answer.status == 200
    assert answer.body["outputs"][0]["data"] == [42.0]
    assert answer.revision == "hello-00001"


async def test_the_path_form_reaches_a_model_of_the_default_namespace(world: World) -> None:
    world.needs("gateway")
    await world.deploy("by-path", storageUri=world.artifacts("double"), minReplicas=1)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [3]}]}

    answer = await world.send("POST", "/v2/models/by-path/infer", {}, body)
    unknown = await world.send("POST", "/v2/models/nobody/infer", {}, body)

    assert (answer.status, answer.body["outputs"][0]["data"]) == (200, [6.0])
    assert unknown.status == 404
    assert "error" in unknown.body


@pytest.mark.fault("K13")
async def test_a_canary_gets_its_share_and_promote_and_rollback_lose_no_request(world: World) -> None:
    await world.deploy("split", storageUri=world.artifacts("double"), version="1", minReplicas=1)

    async with world.under_load("split") as load:
        await world.deploy("split", storageUri=world.artifacts("triple"), version="2", canaryTrafficPercent=10)
        await world.carries("split", {"split-00001": 90, "split-00002": 10})
        measured = await world.requests("split", 4000)
        found = await world.cluster.get(MODEL, "split", world.namespace)
        await world.cluster.patch(MODEL, "split", promote(found), world.namespace, manager=MANAGER)
        await world.carries("split", {"split-00002": 100})
        promoted = await world.requests("split", 200)
        found = await world.cluster.get(MODEL, "split", world.namespace)
        await world.cluster.patch(
            MODEL, "split", rollback(found, await world.revisions("split")), world.namespace, manager=MANAGER
        )
        await world.carries("split", {"split-00001": 100})
        rolled_back = await world.requests("split", 200)

    share = measured.answers["split-00002"] / measured.total
    assert measured.failures == []
    assert 0.08 <= share <= 0.12
    assert set(promoted.answers) == {"split-00002"}
    assert set(rolled_back.answers) == {"split-00001"}
    assert load.failures == promoted.failures == rolled_back.failures == []
    assert load.total > 100


@pytest.mark.fault("K13")
async def test_a_tag_reaches_its_version_by_host_and_by_header_whatever_its_percent(world: World) -> None:
    await world.deploy("tagged", storageUri=world.artifacts("double"), minReplicas=1)
    await world.deploy(
        "tagged",
        storageUri=world.artifacts("triple"),
        traffic=[{"revision": "tagged-00001", "percent": 100}, {"latest": True, "percent": 0, "tag": "blue"}],
    )

    assert set((await world.requests("tagged", 200)).answers) == {"tagged-00001"}
    assert {(await world.ask("tagged", tag="blue")).revision for _ in range(20)} == {"tagged-00002"}
    assert {(await world.ask("tagged", tag_header="blue")).revision for _ in range(20)} == {"tagged-00002"}


async def test_three_versions_serve_at_once(world: World) -> None:
    for number, artifact in enumerate(("double", "triple", "double"), 1):
        await world.deploy("three", storageUri=world.artifacts(artifact), version=str(number), minReplicas=1)
    shares = {"three-00001": 20, "three-00002": 30, "three-00003": 50}

    await world.deploy("three", traffic=[{"revision": name, "percent": share} for name, share in shares.items()])
    await world.carries("three", shares)
    seen = await world.requests("three", 600)

    assert seen.failures == []
    for name, share in shares.items():
        assert abs(seen.answers[name] / seen.total - share / 100) < 0.08


async def test_two_variants_share_one_route(world: World) -> None:
    await world.deploy(
        "varied",
        storageUri=world.artifacts("double"),
        minReplicas=1,
        variants=[
            {"name": "small", "resources": {"cpu": "50m"}, "percent": 25},
            {"name": "large", "resources": {"cpu": "100m"}, "percent": 75},
        ],
    )

    seen = await world.requests("varied", 400)

    assert seen.failures == []
    assert set(seen.answers) == {"varied-small-00001", "varied-large-00001"}
    assert 0.15 < seen.answers["varied-small-00001"] / seen.total < 0.35


async def test_a_model_gains_and_loses_variants_without_a_lost_request(world: World) -> None:
    await world.deploy("shifting", storageUri=world.artifacts("double"), minReplicas=1)

    async with world.under_load("shifting") as load:
        await world.deploy(
            "shifting",
            variants=[{"name": "a", "percent": 50}, {"name": "b", "percent": 50}],
        )
        split = await world.requests("shifting", 100)
        await world.deploy("shifting", variants=None)
        single = await world.requests("shifting", 100)

    assert load.failures == []
    assert set(split.answers) == {"shifting-a-00001", "shifting-b-00001"}
    assert len(single.answers) == 1


@pytest.mark.fault("K12")
async def test_a_broken_version_is_never_ready_while_the_old_one_serves_on(world: World) -> None:
    await world.deploy("sturdy", storageUri=world.artifacts("double"), minReplicas=1)

    async with world.under_load("sturdy") as load:
        await world.deploy("sturdy", storageUri=world.artifacts("truncated"), startupDeadline=SOON, wait=False)
        broken = await world.until("sturdy", lambda m: "sturdy-00002" in reason_of(m) and not is_true(m, "Ready"))
        after = await world.requests("sturdy", 50)

    assert load.failures == after.failures == []
    assert set(after.answers) == {"sturdy-00001"}
    assert traffic_of(broken) == {"sturdy-00001": 100}


@pytest.mark.fault("M1")
async def test_a_wrong_digest_is_refused_with_both_digests_named(world: World) -> None:
    wrong = "sha256:" + "0" * 64

    await world.deploy("forged", storageUri=world.artifacts("double"), digest=wrong, startupDeadline=SOON, wait=False)
    refused = await world.until("forged", lambda m: "digest" in reason_of(m))

    assert wrong.removeprefix("sha256:") in reason_of(refused)
    assert not is_true(refused, "Ready")


async def test_scaling_fields_make_no_version(world: World) -> None:
    await world.deploy("scaled", storageUri=world.artifacts("double"), minReplicas=1)

    await world.deploy("scaled", maxReplicas=7, scaleTarget=2, scaleToZeroAfter="30s")

    revisions = await world.cluster.list(REVISION, world.namespace, "serving.knative.dev/configuration=scaled")
    assert [item["metadata"]["name"] for item in revisions.items] == ["scaled-00001"]


async def test_a_mended_version_replaces_a_broken_one(world: World) -> None:
    await world.deploy("mended", storageUri=world.artifacts("truncated"), startupDeadline=SOON, wait=False)
    await world.until("mended", lambda m: "mended-00001" in reason_of(m) and not is_true(m, "Ready"))

    await world.deploy("mended", storageUri=world.artifacts("double"), startupDeadline=None)

    assert (await world.ask("mended")).revision == "mended-00002"
