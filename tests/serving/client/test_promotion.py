"""Which fields of a Model a promotion changes in its target. Pure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serving.client.models.promotion import Place, ServingVersion, promoted_model
from serving.client.platform_ref import PlatformRef
from serving.types.model import Cause, HistoryEntry

DEV = Place("dev", PlatformRef(Path("/dev-state")), "default")
NOW = "2026-01-02T03:04:05Z"
FILES = {"storageUri": "s3://models/churn/7", "digest": "sha256:" + "7" * 64, "version": "7"}
ENTRY = HistoryEntry("churn-00003", "7", FILES["digest"], FILES["storageUri"], Cause(), "promoted", NOW, NOW)


def promoted(before: dict[str, Any] | None, source: dict[str, Any] | None = None, rolls: bool = True) -> dict[str, Any]:
    """Return the Model to merge into a target with the spec `before`, from a source with these fields."""
    spec = {"storageUri": "s3://models/churn/8", "digest": "sha256:" + "8" * 64, "version": "8", **(source or {})}
    model = {"metadata": {"name": "churn", "labels": {"team": "a", "knodel.dev/model": "x"}}, "spec": spec}
    present = None if before is None else {"metadata": {"name": "churn"}, "spec": before}
    return promoted_model(
        "churn", DEV, ServingVersion(model, ENTRY), "ml", present, dict(FILES), rollout=rolls, now=NOW
    )


def test_a_new_model_gets_the_fields_of_the_source_and_the_version_that_serves() -> None:
    source = {"minReplicas": 2, "resources": {"cpu": "2"}, "modelFormat": "onnx", "canaryTrafficPercent": 10,
              "traffic": [{"latest": True, "percent": 100}]}  # fmt: skip

    made = promoted(None, source)

    assert made["metadata"]["namespace"] == "ml" and made["metadata"]["labels"] == {"team": "a"}
    kept = {"minReplicas": 2, "resources": {"cpu": "2"}, "modelFormat": "onnx"}
    assert made["spec"] == {**kept, **FILES, "rollout": {}}


def test_a_model_that_exists_keeps_its_fields() -> None:
    made = promoted(
        {"minReplicas": 5, "modelFormat": "onnx", "version": "6"}, {"minReplicas": 1, "modelFormat": "onnx"}
    )

    assert made["spec"] == {**FILES, "rollout": {}, "traffic": None, "canaryTrafficPercent": None}
    assert "labels" not in made["metadata"]


@pytest.mark.parametrize(
    ("before", "rollout", "source", "expected"),
    [
        ({}, True, {"rollout": {"steps": [5, 100]}}, {"steps": [5, 100]}),
        ({"rollout": {"maxSurge": 2}}, True, {"rollout": {"maxSurge": 9}}, {"maxSurge": 2}),
        ({"rollout": {"maxSurge": 2}}, False, {}, None),
        ({}, False, {"rollout": {}}, "untouched"),
    ],
)
def test_the_rollout_is_that_of_the_target_else_of_the_source(
    before: dict[str, Any], rollout: bool, source: dict[str, Any], expected: Any
) -> None:
    assert promoted(before, source, rollout)["spec"].get("rollout", "untouched") == expected


def test_bytes_of_another_format_bring_their_format() -> None:
    assert promoted({"modelFormat": "onnx"}, {"modelFormat": "sklearn"})["spec"]["modelFormat"] == "sklearn"
    assert promoted({"modelFormat": "onnx"})["spec"]["modelFormat"] is None


def test_the_cause_names_where_and_when_the_version_came_from() -> None:
    cause = json.loads(promoted(None)["metadata"]["annotations"]["knodel.dev/cause"])

    assert cause == {"by": "promotion", "source": "dev", "id": f"default/churn-00003@{NOW}"}
