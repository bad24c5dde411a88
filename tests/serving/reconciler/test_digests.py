"""Revisions without a digest in the spec: recorded, then required of later replicas; one replica until then."""

from __future__ import annotations

import json
from typing import Any, cast

from autoscaler.types import HELD_ANNOTATION, POLICY_ANNOTATION
from clusters.base.api import Cluster
from clusters.base.errors import Unavailable
from clusters.base.objects import CONFIG_MAP, MODEL, POD_AUTOSCALER, Kind, Object, annotations_of, uid_of
from clusters.embedded.cluster import EmbeddedCluster
from serving.reconciler.rollout.versions import versions_of
from tests.serving.models import VARIANTS, model_object
from tests.serving.reconciler.conftest import DIGEST, ModelStage, platform
from tests.support.wait import eventually

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


class Refusing:
    """A cluster that refuses to write ConfigMaps until it is `open`."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.open = False
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def apply(self, kind: Kind, obj: Object, **options: Any) -> Object:
        """Apply, or refuse."""
        if kind is CONFIG_MAP and not self.open:
            self.refused += 1
            raise Unavailable("the record cannot be written")
        return await self._cluster.apply(kind, obj, **options)


async def test_a_revision_is_not_marked_as_held_before_its_record_is_written(guarded: EmbeddedCluster) -> None:
    refusing = Refusing(guarded)
    async with platform(guarded, seen=cast(Cluster, refusing)) as stage:
        await stage.deploy(model_object(minReplicas=2, maxReplicas=9))
        await stage.becomes(POD_AUTOSCALER, "magika-00001", lambda obj: bounds(obj) == (1, 1))
        await stage.loaded("magika-00001", DIGEST)
        await eventually(lambda: refusing.refused >= 2)
        autoscaler = await stage.get(POD_AUTOSCALER, "magika-00001")
        assert (bounds(autoscaler), annotations_of(autoscaler).get(HELD_ANNOTATION)) == ((1, 1), None)
        refusing.open = True
        await stage.becomes(POD_AUTOSCALER, "magika-00001", lambda obj: bounds(obj) == (2, 9))


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


READY: Object = {"conditions": [{"type": "Ready", "status": "True"}]}


def revision(name: str) -> Object:
    """One of two variants of a version."""
    labels = {"serving.knative.dev/configuration": name[:-6], "knodel.dev/generation": "g"}
    return {"metadata": {"name": name, "namespace": "default", "labels": labels}, "status": READY}


def test_a_version_with_variants_is_ready_once_the_digests_of_all_are_recorded() -> None:
    members = [revision("m-a-00001"), revision("m-b-00001")]
    [unknown] = versions_of(members, loaded={"m-a-00001": DIGEST}, unheld={"m-b-00001"})
    [single] = versions_of(members[:1], unheld={"m-a-00001"})
    assert (unknown.ready, unknown.failure) == (False, None)
    assert single.ready  # its one replica is the first


def test_variants_that_loaded_different_bytes_are_no_version() -> None:
    members = [revision("m-a-00001"), revision("m-b-00001")]
    [same] = versions_of(members, loaded={"m-a-00001": DIGEST, "m-b-00001": DIGEST})
    [different] = versions_of(members, loaded={"m-a-00001": DIGEST, "m-b-00001": OTHER}, unheld={"m-b-00001"})
    assert (same.failure, same.digest, same.held, same.ready) == (None, DIGEST, True, True)
    assert not different.ready
    assert different.failure is not None and different.failure.reason == "DigestsDiffer"
    assert different.failure.final
    assert DIGEST in different.failure.message and OTHER in different.failure.message
    assert not different.held


async def test_each_variant_is_held_to_its_own_record(stage: ModelStage) -> None:
    stored = await stage.deploy(model_object(variants=VARIANTS, minReplicas=2, maxReplicas=9))
    first, second = "magika-a100-00001", "magika-v100-00001"
    for name in (first, second):
        await stage.becomes(POD_AUTOSCALER, name, lambda obj: bounds(obj) == (1, 1))

    await stage.loaded(first, DIGEST)
    await stage.becomes(POD_AUTOSCALER, first, lambda obj: bounds(obj) == (2, 9))
    autoscaler = await stage.get(POD_AUTOSCALER, second)
    assert (bounds(autoscaler), annotations_of(autoscaler).get(HELD_ANNOTATION)) == ((1, 1), None)

    await stage.loaded(second, DIGEST)
    await stage.becomes(POD_AUTOSCALER, second, lambda obj: bounds(obj) == (2, 9))
    record = await stage.get(CONFIG_MAP, f"knodel-digests-{uid_of(stored)}")
    assert record["data"] == {first: DIGEST, second: DIGEST}


async def test_a_version_whose_variants_load_different_bytes_gets_no_traffic_and_names_both(
    stage: ModelStage,
) -> None:
    await stage.deploy(model_object())
    await stage.comes_up("magika-00001")
    await stage.traffic_is({"magika-00001": 100})

    await stage.edit({"spec": {"variants": VARIANTS}})
    await stage.loaded((await stage.appears(POD_AUTOSCALER, "magika-a100-00001"))["metadata"]["name"], OTHER)
    await stage.comes_up("magika-v100-00001")
    found = await stage.model_is("False")

    text = json.dumps(found["status"]["conditions"])
    assert DIGEST in text and OTHER in text and "DigestsDiffer" in text
    await stage.comes_up("magika-a100-00001")
    await stage.traffic_is({"magika-00001": 100})
