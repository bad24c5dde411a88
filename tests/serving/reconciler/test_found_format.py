"""The detected model format in the status of a Model."""

from __future__ import annotations

import json

from autoscaler.warmpool.claims.marks import ANNOTATION_STARTS
from clusters.base.objects import MODEL, POD_AUTOSCALER, Object
from tests.clusters.knative.stage import NAMESPACE
from tests.serving.models import model_object
from tests.serving.reconciler.conftest import ModelStage


async def note_starts(stage: ModelStage, revision: str, *starts: Object) -> None:
    """Play the autoscaler."""
    noted = {ANNOTATION_STARTS: json.dumps([{"at": "2026-01-01T00:00:00Z", **start} for start in starts])}
    await stage.cluster.patch(POD_AUTOSCALER, revision, {"metadata": {"annotations": noted}}, NAMESPACE, manager="a")


async def test_it_is_that_of_the_latest_ready_revisions_newest_start_that_tells_one(serving: ModelStage) -> None:
    await note_starts(serving, "magika-00001", {"format": "sklearn"}, {"format": "onnx"}, {"format": 3}, {})
    await serving.becomes(MODEL, "magika", lambda model: model["status"].get("modelFormat") == "onnx")

    await serving.deploy(model_object(version="2"))
    await serving.appears(POD_AUTOSCALER, "magika-00002")
    await note_starts(serving, "magika-00002", {"format": "xgboost"})
    found = await serving.becomes(MODEL, "magika", lambda model: len(model["status"]["starts"]) == 5)
    assert found["status"]["modelFormat"] == "onnx"  # the new version is not ready yet

    await serving.comes_up("magika-00002")
    await serving.becomes(MODEL, "magika", lambda model: model["status"].get("modelFormat") == "xgboost")
