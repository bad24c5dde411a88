"""From a Model to a ready version, on a real embedded cluster."""

from __future__ import annotations

import asyncio
import json

import pytest

from autoscaler.types import POLICY_ANNOTATION
from clusters.base.objects import (
    CONFIGURATION,
    MODEL,
    POD_AUTOSCALER,
    REVISION,
    SERVICE,
    Object,
    annotations_of,
    condition_of,
    generation_of,
)
from tests.clusters.knative.stage import service
from tests.serving.models import model_object
from tests.serving.reconciler.conftest import ModelStage


def _versions(model: Object) -> list[str]:
    return [line.get("version", "") for line in (model.get("status") or {}).get("history") or ()]


def with_uri(uri: str, **more: object) -> Object:
    return {"spec": {"storageUri": uri, **more}}


async def test_a_model_becomes_a_service_and_is_ready_once_its_route_was_seen(stage: ModelStage) -> None:
    await stage.deploy(model_object(version="7"))
    await stage.model_is("Unknown")
    await stage.comes_up("magika-00001")
    await stage.model_is("Unknown")
    model = await stage.traffic_is({"magika-00001": 100})
    model = await stage.model_is("True")
    status = model["status"]
    assert status["url"] == "http://magika.default.localhost:8080"
    local = "http://magika.default.svc.cluster.local"
    assert status["address"] == {"url": local}  # what a Trigger of Knative's takes, or the first of these
    assert [(one["name"], one["url"]) for one in status["addresses"]] == [
        ("cluster-local", local), ("public", status["url"]),
    ]  # fmt: skip
    assert status["latestCreatedRevision"] == status["latestReadyRevision"] == "magika-00001"
    assert status["traffic"] == [{"revision": "magika-00001", "version": "7", "percent": 100}]
    assert status["replicas"] == {"desired": 1, "ready": 1, "starting": 0}
    [line] = status["history"]
    assert line["version"] == "7"
    assert line["outcome"] == "promoted"
    assert line["cause"] == {"by": "user"}
    await stage.tells_of("RevisionReady", "Promoted", "TrafficChanged")


async def test_scaling_fields_make_no_revision_and_reach_every_living_autoscaler(serving: ModelStage) -> None:
    before = generation_of(await serving.get(SERVICE, "magika"))
    await serving.edit({"spec": {"minReplicas": 2, "maxReplicas": 9, "scaleTarget": 8, "scaleToZeroAfter": "5m"}})

    def is_told(autoscaler: Object) -> bool:
        policy = json.loads(annotations_of(autoscaler).get(POLICY_ANNOTATION, "{}"))
        return (policy.get("minReplicas"), policy.get("maxReplicas"), policy.get("scaleToZeroAfter")) == (2, 9, 300.0)

    await serving.becomes(POD_AUTOSCALER, "magika-00001", is_told)
    await serving.model_is("True")
    assert generation_of(await serving.get(SERVICE, "magika")) == before
    assert await serving.find(REVISION, "magika-00002") is None


@pytest.mark.fault("A11")
async def test_a_model_that_serves_says_why_one_more_replica_does_not_start(serving: ModelStage) -> None:
    autoscaler = await serving.get(POD_AUTOSCALER, "magika-00001")
    former = autoscaler["status"]["conditions"]
    said = {"type": "ReplicasStarted", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: no GPU"}
    await _report(serving, [*former, said])

    def says(model: Object) -> bool:
        return (condition_of(model, "ReplicasStarted") or {}).get("status") == "False"

    waiting = condition_of(await serving.becomes(MODEL, "magika", says), "ReplicasStarted") or {}
    assert (waiting["reason"], waiting["message"]) == ("Unschedulable", "magika-00001: 0/1 nodes: no GPU")
    await serving.model_is("True")

    await _report(serving, [*former, {"type": "ReplicasStarted", "status": "True"}])
    await serving.becomes(MODEL, "magika", lambda model: condition_of(model, "ReplicasStarted") is None)


async def _report(stage: ModelStage, conditions: list[Object]) -> None:
    """Play the autoscaler."""
    patch = {"status": {"conditions": conditions}}
    await stage.cluster.patch(
        POD_AUTOSCALER, "magika-00001", patch, "default", manager="autoscaler", subresource="status"
    )


async def test_a_new_version_takes_over_only_when_it_is_ready(serving: ModelStage) -> None:
    await serving.edit(with_uri("file:///models/v2", version="2"))
    await serving.appears(REVISION, "magika-00002")
    assert await serving.host_gets() == {"magika-00001": 100}
    await serving.comes_up("magika-00002")
    await serving.traffic_is({"magika-00002": 100})
    assert await serving.history() == [("magika-00001", "superseded", "user"), ("magika-00002", "promoted", "user")]
    await serving.becomes(
        REVISION, "magika-00001", lambda obj: annotations_of(obj).get("serving.knative.dev/no-gc") == "true"
    )
    assert "serving.knative.dev/no-gc" not in annotations_of(await serving.get(REVISION, "magika-00002"))


async def test_a_model_is_not_ready_before_its_new_version_was_seen_at_the_gateway(serving: ModelStage) -> None:
    seen: list[str] = []
    start = (await serving.cluster.list(MODEL)).resource_version
    await serving.edit(with_uri("file:///models/v2"))
    await serving.comes_up("magika-00002")
    await serving.quiet()
    async with asyncio.timeout(5):
        async for event in serving.cluster.watch(MODEL, start):
            status = event.object.get("status") or {}
            if event.type == "BOOKMARK" or status.get("observedGeneration") != 2:
                continue
            seen.append((condition_of(event.object, "Ready") or {})["status"])
            if status["latestReadyRevision"] == "magika-00002":
                break
    assert "True" not in seen
    assert (await serving.model())["status"]["traffic"] == [
        {"revision": "magika-00001", "version": "1", "percent": 100}
    ]


@pytest.mark.fault("K12")
async def test_a_version_that_fails_leaves_the_old_one_serving_and_says_why(serving: ModelStage) -> None:
    await serving.edit(with_uri("file:///models/broken"))
    await serving.appears(REVISION, "magika-00002")
    await serving.deployment_reports("magika-00002", 0)
    await serving.container_ends("magika-00002", 1, "digest of /models/broken is wrong")
    model = await serving.model_is("False", reason="ExitCode1")
    ready = condition_of(model, "Ready") or {}
    assert "magika-00002" in ready["message"]
    assert "digest of /models/broken is wrong" in ready["message"]
    assert await serving.host_gets() == {"magika-00001": 100}
    await serving.becomes_history([("magika-00001", "promoted", "user"), ("magika-00002", "failed", "user")])


async def test_a_canary_shares_with_the_version_that_last_had_everything(serving: ModelStage) -> None:
    await serving.edit(with_uri("file:///models/v2", canaryTrafficPercent=10))
    await serving.appears(REVISION, "magika-00002")
    assert await serving.host_gets() == {"magika-00001": 100}
    await serving.comes_up("magika-00002")
    await serving.traffic_is({"magika-00001": 90, "magika-00002": 10})
    assert await serving.history() == [("magika-00001", "serving", "user"), ("magika-00002", "serving", "user")]


async def test_an_unknown_revision_in_traffic_is_said_and_changes_nothing(serving: ModelStage) -> None:
    await serving.edit({"spec": {"traffic": [{"revision": "magika-00009", "percent": 100}]}})
    model = await serving.model_is("False", reason="RevisionMissing")
    assert "magika-00009" in (condition_of(model, "Ready") or {})["message"]
    assert await serving.host_gets() == {"magika-00001": 100}


async def test_tags_reach_their_version_whatever_its_percent(serving: ModelStage) -> None:
    traffic = [{"revision": "magika-00001", "percent": 100}, {"latest": True, "percent": 0, "tag": "blue"}]
    await serving.edit(with_uri("file:///models/v2", traffic=traffic))
    await serving.comes_up("magika-00002")
    model = await serving.traffic_is({"magika-00001": 100}, entries=2)
    blue = next(entry for entry in model["status"]["traffic"] if entry.get("tag") == "blue")
    assert blue["url"] == "http://blue-magika.default.localhost:8080"
    assert "magika-00002 gets no traffic" in (condition_of(model, "TrafficPinned") or {})["message"]


@pytest.mark.fault("K6")
async def test_somebody_elses_service_is_left_untouched(stage: ModelStage) -> None:
    theirs = await stage.apply(service())
    await stage.quiet()
    await stage.deploy(model_object())
    model = await stage.model_is("False", reason="NotOwned")
    assert "Service magika" in (condition_of(model, "Ready") or {})["message"]
    assert (await stage.get(SERVICE, "magika"))["spec"] == theirs["spec"]
    assert not {"url", "latestCreatedRevision", "latestReadyRevision"} & model["status"].keys()


async def test_drift_of_our_own_objects_is_mended(serving: ModelStage) -> None:
    live = await serving.get(SERVICE, "magika")
    template = {"spec": {"template": {"spec": {"timeoutSeconds": 17}}}}
    await serving.cluster.patch(SERVICE, "magika", template, "default", manager="somebody")
    await serving.becomes(
        SERVICE,
        "magika",
        lambda obj: obj["spec"]["template"] == live["spec"]["template"] and generation_of(obj) > generation_of(live),
    )


async def test_a_deleted_model_takes_everything_along_and_a_new_one_comes_up(serving: ModelStage) -> None:
    await serving.cluster.delete(MODEL, "magika", "default")
    await serving.deploy(model_object(version="again"))
    await serving.becomes(MODEL, "magika", lambda obj: _versions(obj) == ["again"])
    await serving.comes_up("magika-00001")
    await serving.traffic_is({"magika-00001": 100})
    await serving.model_is("True")


async def test_once_all_is_settled_nothing_is_written_any_more(serving: ModelStage) -> None:
    version = await serving.quiet()
    before = await serving.versions()
    await serving.cluster.patch(
        CONFIGURATION, "magika", {"metadata": {"annotations": {"touched": "1"}}}, "default", manager="somebody"
    )
    await serving.quiet()
    after = await serving.versions()
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed <= {"configurations.serving.knative.dev magika"}, (version, changed)
