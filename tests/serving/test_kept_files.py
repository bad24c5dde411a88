"""Which kept copies versions need, by the objects that have their digests."""

from __future__ import annotations

import json

import pytest

from autoscaler.types import HELD_ANNOTATION, LOADED_ANNOTATION
from autoscaler.warmpool.claims.marks import ANNOTATION_LOAD
from clusters.base.objects import CONFIG_MAP, MODEL, POD_AUTOSCALER, REVISION, Kind, Object
from serving.platform.kept_files import living_digests
from serving.storage.base.digest import of_bytes
from serving.types.annotations import ANNOTATION_DIGEST, ANNOTATION_STORAGE_URI

DIGEST = of_bytes(b"graph")
LOAD = {"name": "m", "storageUri": "s3://box/m", "llm": {"adapters": [{"name": "a", "digest": DIGEST}]}}
LOCAL = {ANNOTATION_STORAGE_URI: "file:///m.onnx"}


def thing(name: str, annotations: dict[str, str] | None = None, **fields: Object) -> Object:
    return {"metadata": {"name": name, "namespace": "default", "annotations": annotations or {}}, **fields}


def living(**objects: Object) -> frozenset[str] | None:
    """The digests of one object of each named kind."""
    kinds = {"model": MODEL, "revision": REVISION, "autoscaler": POD_AUTOSCALER, "record": CONFIG_MAP}
    found: dict[Kind, list[Object]] = {kind: [] for kind in kinds.values()}
    for name, obj in objects.items():
        found[kinds[name]].append(obj)
    return living_digests(found)


REVISION_WITHOUT_PROMISE = thing("m-00001", LOCAL)


@pytest.mark.parametrize(
    "objects",
    [
        {"model": thing("m", spec={"digest": DIGEST})},
        {"model": thing("m", spec={}, status={"history": [{"revision": "m-00001", "digest": DIGEST}]})},
        {"model": thing("m", spec={"llm": {"adapters": [{"name": "a", "uri": "file:///a", "digest": DIGEST}, {}]}})},
        {"revision": thing("m-00001", {ANNOTATION_LOAD: json.dumps(LOAD)})},
        {"revision": thing("m-00001", {**LOCAL, ANNOTATION_DIGEST: DIGEST})},
        {"revision": REVISION_WITHOUT_PROMISE, "autoscaler": thing("m-00001", {LOADED_ANNOTATION: DIGEST})},
        {"revision": REVISION_WITHOUT_PROMISE, "autoscaler": thing("m-00001", {HELD_ANNOTATION: DIGEST})},
        {"record": thing("knodel-adapters-1", data={"adapters.json": json.dumps({"revisions": {"m-1": DIGEST}})})},
        {"revision": REVISION_WITHOUT_PROMISE, "record": thing("knodel-digests-1", data={"m-00001": DIGEST})},
    ],
)
def test_every_record_of_a_digest_keeps_its_copy(objects: dict[str, Object]) -> None:
    assert living(**objects) == frozenset({DIGEST})


def test_nothing_is_collected_while_the_digest_of_a_local_revision_is_unknown() -> None:
    other = thing("m-00002", {LOADED_ANNOTATION: DIGEST})
    assert living(revision=REVISION_WITHOUT_PROMISE, autoscaler=other, record=thing("knodel-digests-1")) is None
    assert living(revision=thing("m-00001", {ANNOTATION_STORAGE_URI: "https://h/m"})) == frozenset()


def test_other_config_maps_keep_nothing() -> None:
    assert living(record=thing("settings", data={"m-00001": DIGEST})) == frozenset()
