"""Revisions without a promised digest: recorded, then held, with one replica until then."""

from __future__ import annotations

import json

from autoscaler.apis import HELD_ANNOTATION, POLICY_ANNOTATION
from clusters.objects import CONFIG_MAP, MODEL, POD_AUTOSCALER, Object, annotations_of, uid_of
from serving.rollout.versions import versions_of
from tests.serving.models import model_object
from tests.serving.reconciler.conftest import DIGEST, ModelStage

OTHER = "sha256:" + "1" * 64


def bounds(autoscaler: Object) -> tuple[int, int]:
    """The least and the most replicas that a PodAutoscaler may have."""
    policy = json.loads(annotations_of(autoscaler).get(POLICY_ANNOTATION, "{}"))
    return policy.get("minReplicas"), policy.get("maxReplicas")


async def test_a_revision_has_one_replica_until_what_it_loaded_is_recorded(stage: ModelStage) -> None:
    stored = await stage.deploy(model_object(minReplicas=2, maxReplicas=9))
    await stage.becomes(POD_AUTOSCALER, "magika-00001", lambda obj: bounds(obj) == (1, 1))

    await stage.loaded("magika-00001", DIGEST)

    await stage.becomes(POD_AUTOSCALER, "magika-00001", lambda obj: bounds(obj) == (2, 9))
    autoscaler = await stage.get(POD_AUTOSCALER, "magika-00001")
    assert annotations_of(autoscaler)[HELD_ANNOTATION] == DIGEST
    record = await stage.get(CONFIG_MAP, f"knodel-digests-{uid_of(stored)}")
    assert record["data"] == {"magika-00001": DIGEST}
    assert record["metadata"]["ownerReferences"][0]["uid"] == uid_of(stored)


async def test_the_history_learns_the_digest_and_each_revision_keeps_its_own(stage: ModelStage) -> None:
    stored = await stage.deploy(model_object())
    await stage.loaded((await stage.appears(POD_AUTOSCALER, "magika-00001"))["metadata"]["name"], DIGEST)
    await stage.edit({"spec": {"version": "2"}})
    await stage.loaded((await stage.appears(POD_AUTOSCALER, "magika-00002"))["metadata"]["name"], OTHER)

    def told(obj: Object) -> bool:
        history = (obj.get("status") or {}).get("history") or []
        return [entry.get("digest") for entry in history] == [DIGEST, OTHER]

    await stage.becomes(MODEL, "magika", told)
    record = await stage.get(CONFIG_MAP, f"knodel-digests-{uid_of(stored)}")
    assert record["data"] == {"magika-00001": DIGEST, "magika-00002": OTHER}


async def test_a_promised_digest_needs_no_record(stage: ModelStage) -> None:
    stored = await stage.deploy(model_object(minReplicas=2, digest=OTHER))
    await stage.loaded((await stage.appears(POD_AUTOSCALER, "magika-00001"))["metadata"]["name"], OTHER)
    await stage.becomes(POD_AUTOSCALER, "magika-00001", lambda obj: bounds(obj)[0] == 2)
    assert await stage.find(CONFIG_MAP, f"knodel-digests-{uid_of(stored)}") is None


def revision(name: str) -> Object:
    """One of two variants of a version."""
    labels = {"serving.knative.dev/configuration": name[:-6], "knodel.dev/generation": "g"}
    return {"metadata": {"name": name, "namespace": "default", "labels": labels}}


def test_variants_that_loaded_different_bytes_are_no_version() -> None:
    members = [revision("m-a-00001"), revision("m-b-00001")]
    [same] = versions_of(members, loaded={"m-a-00001": DIGEST, "m-b-00001": DIGEST})
    [different] = versions_of(members, loaded={"m-a-00001": DIGEST, "m-b-00001": OTHER}, unheld={"m-b-00001"})
    assert (same.failure, same.digest, same.held) == (None, DIGEST, True)
    assert different.failure is not None and different.failure.reason == "DigestsDiffer"
    assert different.failure.final
    assert DIGEST in different.failure.message and OTHER in different.failure.message
    assert not different.held
