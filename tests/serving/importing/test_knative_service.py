"""Knative Services that run a known model server become Models."""

from __future__ import annotations

from typing import Any

import pytest

from serving.importing.convert import convert
from tests.serving.importing.test_inference_service import listed, service, spec_of, unaccounted


def knative(container: dict[str, Any], annotations: dict[str, str] | None = None, **pod: Any) -> dict[str, Any]:
    template = {"metadata": {"annotations": annotations or {}}, "spec": {**pod, "containers": [container]}}
    return {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {"name": "iris", "namespace": "ml"},
        "spec": {"template": template, "traffic": [{"latestRevision": True, "percent": 100}]},
    }


URI = "s3://models/iris"
SERVERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"image": "kserve/sklearnserver:v0.15.0", "args": ["--model_dir", f"{URI}/m.pkl"]},
        {"storageUri": f"{URI}/m.pkl", "modelFormat": "pickle"},
    ),
    ({"image": "docker.io/kserve/xgbserver", "args": [f"--model_dir={URI}"]}, {"modelFormat": "xgboost"}),
    (
        {"image": "kserve/lgbserver@sha256:" + "0" * 64, "env": [{"name": "STORAGE_URI", "value": URI}]},
        {"modelFormat": "lightgbm"},
    ),
    (
        {
            "image": "kserve/xgbserver",
            "args": ["--model_dir", "/mnt/models"],
            "env": [{"name": "STORAGE_URI", "value": URI}],
        },
        {"modelFormat": "xgboost"},
    ),
    (
        {"image": "tensorflow/serving:2.19.0", "env": [{"name": "MODEL_BASE_PATH", "value": URI}]},
        {"modelFormat": "tensorflow"},
    ),
    ({"image": "nvcr.io/nvidia/tritonserver:25.01-py3", "command": ["tritonserver", f"--model-repository={URI}"]}, {}),
    (
        {"image": "registry.test/a/knodel:1", "args": ["--name", "x", "--storage-uri", URI, "--format", "onnx"]},
        {"modelFormat": "onnx"},
    ),
]


@pytest.mark.parametrize(("container", "expected"), SERVERS)
def test_a_known_server_is_a_model(container: dict[str, Any], expected: dict[str, Any]) -> None:
    document = knative(container)
    conversion = convert(document)
    assert spec_of(conversion) == {"storageUri": URI, **expected}
    assert listed(conversion) == {}
    assert unaccounted(document, conversion) == []
    same = convert(service({"containers": [container]}))
    assert spec_of(same) == {"storageUri": URI, **expected, "minReplicas": 1}


def test_scaling_and_resources_are_carried() -> None:
    annotations = {f"autoscaling.knative.dev/{name}": value for name, value in
                   {"min-scale": "1", "max-scale": "5", "target": "10"}.items()}  # fmt: skip
    container = {**SERVERS[1][0], "resources": {"limits": {"memory": "2Gi"}, "requests": {"cpu": "500m"}}}
    conversion = convert(knative(container, annotations, containerConcurrency=20, timeoutSeconds=30))
    assert listed(conversion) == {}
    assert spec_of(conversion) == {
        "storageUri": URI,
        "modelFormat": "xgboost",
        "minReplicas": 1,
        "maxReplicas": 5,
        "scaleTarget": 10,
        "containerConcurrency": 20,
        "timeout": "30s",
        "resources": {"cpu": "500m", "memory": "2Gi"},
    }


@pytest.mark.parametrize(
    ("container", "why"),
    [
        ({"image": "gcr.io/me/hello"}, "a container with a program of its own is not a model"),
        ({"image": "evil.test/kserve-sklearnserver"}, "a container with a program of its own is not a model"),
        ({"image": "kserve/sklearnserver", "args": ["--model_dir=/mnt/models"]}, "from its own image or volume"),
        ({"image": "kserve/sklearnserver", "args": ["--model_dir=file:///m"]}, "from its own image or volume"),
        ({"image": "tensorflow/serving"}, "from its own image or volume"),
        ({}, "a container with a program of its own is not a model"),
    ],
)
def test_any_other_container_is_not_converted(container: dict[str, Any], why: str) -> None:
    conversion = convert(knative(container))
    assert conversion.models == ()
    assert why in conversion.left_out[0].why


def test_a_split_between_revisions_is_listed() -> None:
    document = knative(SERVERS[1][0])
    document["spec"]["traffic"] = [{"revisionName": "iris-00001", "percent": 100}]
    assert "revisions of its own" in listed(convert(document))["spec.traffic"]
