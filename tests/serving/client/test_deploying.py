"""Models that a deploy merges into stored ones: files or a service, never both."""

from __future__ import annotations

from typing import Any

import pytest

from serving.client.models.deploying import DeployFields, model_of, with_one_source
from serving.client.models.gpu_fields import gpu_fields

URL = "http://ranker-serve-svc:8000/rank"
URI = "s3://models/ranker/7"
DIGEST = "sha256:" + "7" * 64


def test_a_service_is_of_the_format_ray_unless_another_one_is_given() -> None:
    made = model_of("ranker", "ml", DeployFields(ray={"service": URL}))
    assert made["spec"] == {"modelFormat": "ray", "ray": {"service": URL}}
    made = model_of("ranker", "ml", DeployFields(ray={"service": URL}, model_format="python"))
    assert made["spec"]["modelFormat"] == "python"  # which the validation refuses


def test_the_fields_of_gpus_are_merged_and_a_part_replaces_whole_ones() -> None:
    part = DeployFields(resources=gpu_fields(fraction=0.5), priority=7, weight=2.0)
    assert model_of("chat", "ml", part)["spec"] == {
        "resources": {"gpuFraction": 0.5, "gpu": None, "gpuResource": None}, "priority": 7, "weight": 2.0
    }  # fmt: skip
    assert gpu_fields(2, resource="amd.com/gpu") == {"gpuFraction": None, "gpu": 2, "gpuResource": "amd.com/gpu"}
    assert gpu_fields(types=["NVIDIA-L4"]) == {"gpuTypes": ["NVIDIA-L4"]}
    assert gpu_fields(types=[]) == {"gpuTypes": None}
    assert gpu_fields() is None


@pytest.mark.parametrize(
    ("given", "stored", "wanted"),
    [
        ({"ray": {"service": URL}}, {}, {"ray": {"service": URL}}),
        ({"ray": {"service": URL}}, {"ray": {"service": "http://old"}}, {"ray": {"service": URL}}),
        (
            {"ray": {"service": URL}},
            {"storageUri": URI, "digest": DIGEST},
            {"storageUri": None, "digest": None, "ray": {"service": URL}},
        ),
        ({"storageUri": URI}, {"ray": {"service": URL}}, {"storageUri": URI, "ray": {"service": None}}),
        (
            {"storageUri": URI, "ray": {"application": "app:app"}},
            {"ray": {"service": URL}},
            {"storageUri": URI, "ray": {"application": "app:app", "service": None}},
        ),
        ({"storageUri": URI}, {"storageUri": "s3://models/ranker/6"}, {"storageUri": URI}),
        ({"minReplicas": 2}, {"ray": {"service": URL}}, {"minReplicas": 2}),
    ],
)
def test_what_replaces_the_other_source_removes_it(
    given: dict[str, Any], stored: dict[str, Any], wanted: dict[str, Any]
) -> None:
    assert with_one_source({"spec": given}, {"spec": stored})["spec"] == wanted
