"""Variants: several Configurations with one Route, and the change to them and back."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from clusters.base.objects import (
    CONFIGURATION,
    DEPLOYMENT,
    INGRESS,
    MODEL,
    REVISION,
    ROUTE,
    SERVICE,
    Kind,
    Object,
    controller_of,
    is_true,
    labels_of,
)
from serving.reconciler.rollout.commands import promote, rollback
from tests.clusters.knative.stage import splits
from tests.serving.models import VARIANTS, model_object
from tests.serving.reconciler.conftest import ModelStage
from tests.support.loops import at_work

BOTH = {"magika-a100-00001": 60, "magika-v100-00001": 40}
"""Revision → percent of the first version with `VARIANTS`."""


@contextlib.asynccontextmanager
async def watched(stage: ModelStage) -> AsyncIterator[list[dict[str, int]]]:
    """Every state of the Ingress' host while the block runs."""
    seen: list[dict[str, int]] = []
    start = (await stage.cluster.list(INGRESS)).resource_version

    async def follow() -> None:
        async for event in stage.cluster.watch(INGRESS, start):
            if event.type != "BOOKMARK":
                alive = event.type != "DELETED"
                seen.append(splits(event.object, "magika.default.localhost") if alive else {})

    async with at_work(follow()):
        yield seen


async def revisions(stage: ModelStage) -> list[Object]:
    return list((await stage.cluster.list(REVISION, "default", "knodel.dev/model=magika")).items)


async def test_two_variants_share_one_route(stage: ModelStage) -> None:
    await stage.deploy(model_object(variants=VARIANTS))
    await stage.comes_up("magika-a100-00001")
    assert await stage.host_gets() == {}
    await stage.comes_up("magika-v100-00001")
    await stage.traffic_is({"magika-a100-00001": 60, "magika-v100-00001": 40})
    model = await stage.model_is("True")
    assert await stage.history() == [("magika-a100-00001", "promoted", "user")]
    assert model["status"]["latestReadyRevision"] == "magika-a100-00001"
    assert await stage.find(SERVICE, "magika") is None


async def test_a_new_version_goes_live_only_with_all_its_variants(stage: ModelStage) -> None:
    await stage.deploy(model_object(variants=VARIANTS))
    await stage.comes_up("magika-a100-00001", "magika-v100-00001")
    await stage.traffic_is({"magika-a100-00001": 60, "magika-v100-00001": 40})
    await stage.edit({"spec": {"storageUri": "file:///models/v2", "canaryTrafficPercent": 10}})
    await stage.comes_up("magika-a100-00002")
    await stage.quiet()
    await stage.traffic_is({"magika-a100-00001": 60, "magika-v100-00001": 40})
    await stage.comes_up("magika-v100-00002")
    expected = {"magika-a100-00001": 54, "magika-v100-00001": 36, "magika-a100-00002": 6, "magika-v100-00002": 4}
    await stage.traffic_is(expected)
    labels = [labels_of(await stage.get(REVISION, name))["knodel.dev/generation"] for name in expected]
    assert labels[0] == labels[1] != labels[2] == labels[3]


async def test_from_a_service_to_variants_without_a_moment_without_route(serving: ModelStage) -> None:
    async with watched(serving) as seen:
        await serving.edit({"spec": {"variants": VARIANTS}})
        await serving.becomes(ROUTE, "magika", lambda obj: (controller_of(obj) or {}).get("kind") == MODEL.kind)
        await serving.quiet()
        assert await serving.find(SERVICE, "magika") is None
        assert await serving.host_gets() == {"magika-00001": 100}
        assert "serving.knative.dev/service" not in labels_of(await serving.get(CONFIGURATION, "magika"))
        await serving.comes_up("magika-a100-00001", "magika-v100-00001")
        await serving.traffic_is({"magika-a100-00001": 60, "magika-v100-00001": 40})
        await serving.model_is("True")
    assert {} not in seen
    assert await serving.find(DEPLOYMENT, "magika-00001-deployment") is not None
    await serving.edit(rollback(await serving.model(), await revisions(serving)))
    await serving.traffic_is({"magika-00001": 100})


async def with_variants(stage: ModelStage) -> None:
    """The Model gets variants, and they have all the traffic."""
    await stage.edit({"spec": {"variants": VARIANTS}})
    await stage.comes_up(*BOTH)
    await stage.traffic_is(BOTH)
    await stage.model_is("True")


def is_under(kind: Kind) -> Callable[[Object], bool]:
    """Whether an object of this kind controls it."""
    return lambda obj: (controller_of(obj) or {}).get("kind") == kind.kind


async def test_and_back_to_a_service_the_variants_serve_until_the_new_version_is_ready(serving: ModelStage) -> None:
    await with_variants(serving)
    async with watched(serving) as seen:
        await serving.edit({"spec": {"variants": None, "storageUri": "file:///models/v3"}})
        await serving.appears(REVISION, "magika-00002")
        await serving.quiet()
        assert is_under(MODEL)(await serving.get(ROUTE, "magika"))
        await serving.traffic_is(BOTH)
        await serving.comes_up("magika-00002")
        await serving.traffic_is({"magika-00002": 100})
        await serving.becomes(ROUTE, "magika", is_under(SERVICE))
        await serving.becomes(CONFIGURATION, "magika", is_under(SERVICE))
        await serving.model_is("True")
    assert {} not in seen
    assert {"magika-00001": 100} not in seen
    await serving.becomes(SERVICE, "magika", lambda obj: is_true(obj, "Ready"))


async def test_the_same_spec_again_is_the_same_version_again(serving: ModelStage) -> None:
    await with_variants(serving)
    await serving.edit({"spec": {"variants": None}})
    await serving.traffic_is({"magika-00001": 100})
    await serving.model_is("True")
    await serving.becomes(ROUTE, "magika", is_under(SERVICE))
    await serving.edit({"spec": {"variants": VARIANTS}})
    await serving.traffic_is(BOTH)
    await serving.model_is("True")
    assert len(await revisions(serving)) == 3
    assert await serving.history() == [
        ("magika-00001", "superseded", "user"),
        ("magika-a100-00001", "superseded", "user"),
        ("magika-00001", "superseded", "user"),
        ("magika-a100-00001", "promoted", "user"),
    ]


async def test_variants_from_the_start_go_without_a_moment_without_route(stage: ModelStage) -> None:
    await stage.deploy(model_object(variants=VARIANTS))
    await stage.comes_up(*BOTH)
    await stage.traffic_is(BOTH)
    async with watched(stage) as seen:
        await stage.edit({"spec": {"variants": None}})
        await stage.appears(REVISION, "magika-00001")
        await stage.comes_up("magika-00001")
        await stage.traffic_is({"magika-00001": 100})
        await stage.model_is("True")
    assert {} not in seen
    await stage.becomes(ROUTE, "magika", is_under(SERVICE))


async def test_a_rollback_to_variants_gives_each_what_it_had_and_promote_undoes_it(serving: ModelStage) -> None:
    await with_variants(serving)
    await serving.edit({"spec": {"variants": None, "storageUri": "file:///models/v3"}})
    await serving.appears(REVISION, "magika-00002")
    await serving.comes_up("magika-00002")
    await serving.traffic_is({"magika-00002": 100})
    await serving.becomes(ROUTE, "magika", is_under(SERVICE))
    async with watched(serving) as seen:
        await serving.edit(rollback(await serving.model(), await revisions(serving)))
        await serving.traffic_is(BOTH)
        await serving.model_is("True")
        assert await serving.find(SERVICE, "magika") is None
        await serving.quiet()
        await serving.becomes_history(
            [
                ("magika-00001", "superseded", "user"),
                ("magika-a100-00001", "superseded", "user"),
                ("magika-00002", "rolledback", "user"),
                ("magika-a100-00001", "promoted", "rollback"),
            ]
        )
        await serving.edit(promote(await serving.model()))
        await serving.traffic_is({"magika-00002": 100})
        await serving.model_is("True")
        await serving.becomes(ROUTE, "magika", is_under(SERVICE))
    assert {} not in seen


async def test_what_was_made_without_a_service_can_share_traffic_under_one(stage: ModelStage) -> None:
    await stage.deploy(model_object(variants=VARIANTS))
    await stage.comes_up(*BOTH)
    await stage.traffic_is(BOTH)
    await stage.edit({"spec": {"variants": None}})
    await stage.appears(REVISION, "magika-00001")
    await stage.comes_up("magika-00001")
    await stage.traffic_is({"magika-00001": 100})
    await stage.becomes(ROUTE, "magika", is_under(SERVICE))
    await stage.edit({"spec": {"storageUri": "file:///models/v2", "canaryTrafficPercent": 10}})
    await stage.appears(REVISION, "magika-00002")
    await stage.comes_up("magika-00002")
    await stage.traffic_is({"magika-00001": 90, "magika-00002": 10})
    await stage.model_is("True")
    assert is_under(SERVICE)(await stage.get(ROUTE, "magika"))


async def test_a_canary_between_the_shapes_splits_and_then_moves(serving: ModelStage) -> None:
    await with_variants(serving)
    await serving.edit({"spec": {"variants": None, "storageUri": "file:///models/v2", "canaryTrafficPercent": 10}})
    await serving.appears(REVISION, "magika-00002")
    await serving.comes_up("magika-00002")
    await serving.traffic_is({"magika-00002": 10, "magika-a100-00001": 54, "magika-v100-00001": 36})
    await serving.model_is("True")
    await serving.edit(promote(await serving.model()))
    await serving.traffic_is({"magika-00002": 100})
    await serving.becomes(ROUTE, "magika", is_under(SERVICE))


async def test_a_broken_version_moves_nothing_on_the_way_back(serving: ModelStage) -> None:
    await with_variants(serving)
    await serving.edit({"spec": {"variants": None, "storageUri": "file:///models/broken"}})
    await serving.appears(REVISION, "magika-00002")
    await serving.container_ends("magika-00002", 1, "wrong digest")
    model = await serving.model_is("False")
    assert {entry["revision"]: entry["percent"] for entry in model["status"]["traffic"]} == BOTH
    assert is_under(MODEL)(await serving.get(ROUTE, "magika"))
    await serving.edit({"spec": {"variants": VARIANTS, "storageUri": "file:///models/magika"}})
    await serving.traffic_is(BOTH)
    await serving.model_is("True")


@pytest.mark.fault("K12")
async def test_a_broken_variant_moves_nothing_on_the_way_there(serving: ModelStage) -> None:
    await serving.edit({"spec": {"variants": VARIANTS}})
    await serving.comes_up("magika-a100-00001")
    await serving.appears(REVISION, "magika-v100-00001")
    await serving.container_ends("magika-v100-00001", 1, "wrong digest")
    model = await serving.model_is("False")
    assert {entry["revision"]: entry["percent"] for entry in model["status"]["traffic"]} == {"magika-00001": 100}
    await serving.edit({"spec": {"variants": None}})
    await serving.traffic_is({"magika-00001": 100})
    await serving.model_is("True")
    await serving.becomes(ROUTE, "magika", is_under(SERVICE))


async def test_a_percent_of_a_variant_moves_traffic_and_makes_no_revision(stage: ModelStage) -> None:
    await stage.deploy(model_object(variants=VARIANTS))
    await stage.comes_up("magika-a100-00001", "magika-v100-00001")
    await stage.traffic_is({"magika-a100-00001": 60, "magika-v100-00001": 40})
    changed = [{**variant, "percent": percent} for variant, percent in zip(VARIANTS, (5, 95), strict=True)]
    await stage.edit({"spec": {"variants": changed}})
    await stage.traffic_is({"magika-a100-00001": 5, "magika-v100-00001": 95})
    assert len(await revisions(stage)) == 2


async def test_a_crash_of_the_version_that_serves_moves_no_traffic(stage: ModelStage) -> None:
    await stage.deploy(model_object(variants=VARIANTS))
    await stage.comes_up(*BOTH)
    await stage.traffic_is(BOTH)
    await stage.edit({"spec": {"storageUri": "file:///models/v2"}})
    await stage.comes_up("magika-a100-00002", "magika-v100-00002")
    second = {"magika-a100-00002": 60, "magika-v100-00002": 40}
    await stage.traffic_is(second)
    async with watched(stage) as seen:
        await stage.deployment_reports("magika-a100-00002", 0)
        await stage.container_ends("magika-a100-00002", 137, "")
        await stage.model_is("False")
        await stage.quiet()
        await stage.comes_up("magika-a100-00002")
        await stage.traffic_is(second)
        await stage.model_is("True")
    assert all(state == second for state in seen), seen
    expected = [("magika-a100-00001", "superseded", "user"), ("magika-a100-00002", "promoted", "user")]
    assert await stage.history() == expected
