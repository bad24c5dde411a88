"""InferenceServices become Models, and every field is carried, meaningless by a rule, or listed."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.importing.conversion import Conversion, leaves, shown_path
from serving.importing.convert import convert
from serving.importing.inference_service import FRAMEWORKS
from serving.types.validation import read_model

EVERYTHING = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: iris
  namespace: ml
  uid: 0a
  labels: {team: flowers, networking.knative.dev/visibility: cluster-local}
  annotations:
    serving.kserve.io/deploymentMode: Serverless
    autoscaling.knative.dev/metric: concurrency
    autoscaling.knative.dev/class: kpa.autoscaling.knative.dev
    autoscaling.knative.dev/target-utilization-percentage: "80"
    autoscaling.knative.dev/scale-to-zero-pod-retention-period: 5m
    autoscaling.knative.dev/initial-scale: "1"
spec:
  predictor:
    minReplicas: 0
    maxReplicas: 7
    scaleTarget: 3
    scaleMetric: concurrency
    containerConcurrency: 9
    timeout: 60
    canaryTrafficPercent: 10
    serviceAccountName: reader
    batcher: {maxBatchSize: 32, maxLatency: 50}
    deploymentStrategy: {type: RollingUpdate}
    model:
      modelFormat: {name: xgboost, version: "1"}
      runtime: kserve-xgbserver
      protocolVersion: v2
      storageUri: https://models.test/iris.ubj
      name: kserve-container
      ports: [{containerPort: 8080, protocol: TCP}]
      env: [{name: OMP_NUM_THREADS, value: "1"}]
      resources: {requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}
status: {url: "http://iris.ml.example.com"}
"""
"""A document of which a Model has everything."""


def service(predictor: Any, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "iris", **metadata},
        "spec": {"predictor": predictor},
    }


def onnx(**model: Any) -> dict[str, Any]:
    return {"model": {"modelFormat": {"name": "onnx"}, "storageUri": "s3://models/iris", **model}}


def spec_of(conversion: Conversion) -> dict[str, Any]:
    (model,) = conversion.models
    read_model(model)
    spec: dict[str, Any] = model["spec"]
    return spec


def listed(conversion: Conversion) -> dict[str, str]:
    """Return the reason of each field that was left out."""
    return {field.path: field.why for field in conversion.left_out}


def unaccounted(document: dict[str, Any], conversion: Conversion) -> list[str]:
    """Return the leaves that are neither carried, nor meaningless, nor listed."""
    known = [*conversion.carried, *conversion.dropped, *(field.path for field in conversion.left_out)]

    def accounted(path: str) -> bool:
        return any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in known)

    return [path for path in (shown_path(path) for path, _ in leaves(document)) if not accounted(path)]


def test_a_model_has_everything_that_it_can_have() -> None:
    document = yaml.safe_load(EVERYTHING)
    conversion = convert(document)
    assert conversion.left_out == ()
    assert unaccounted(document, conversion) == []
    assert conversion.models[0]["metadata"] == {"name": "iris", "namespace": "ml", "labels": {"team": "flowers"}}
    assert spec_of(conversion) == {
        "storageUri": "https://models.test/iris.ubj",
        "modelFormat": "xgboost",
        "resources": {"cpu": "2", "memory": "1Gi"},
        "canaryTrafficPercent": 10,
        "containerConcurrency": 9,
        "minReplicas": 0,
        "maxReplicas": 7,
        "scaleTarget": 3,
        "targetUtilization": 0.8,
        "scaleToZeroAfter": "5m",
        "visibility": "cluster-local",
        "timeout": "60s",
        "serviceAccountName": "reader",
        "batching": {"maxBatchSize": 32, "maxLatency": "50ms"},
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_form_of_earlier_releases_is_the_same(framework: str) -> None:
    new = {"modelFormat": {"name": framework}, "storageUri": "gs://models/iris"}
    old = convert(service({framework: {"storageUri": "gs://models/iris"}}))
    assert old.models == convert(service({"model": new})).models


def test_the_minimum_of_replicas_is_kserves() -> None:
    assert spec_of(convert(service(onnx()))) == {
        "storageUri": "s3://models/iris",
        "modelFormat": "onnx",
        "minReplicas": 1,
    }


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("gs://models/iris", "joblib"),
        ("https://h.test/model.joblib?raw=true", "joblib"),
        ("s3://models/model.pkl", "pickle"),
        ("s3://models/iris.skops", "sklearn"),
    ],
)
def test_scikit_learns_format_is_that_of_the_file_and_needs_a_permission(uri: str, expected: str) -> None:
    conversion = convert(service({"sklearn": {"storageUri": uri}}, namespace="ml"))
    assert spec_of(conversion)["modelFormat"] == expected
    allowed = "`knodel namespace ml --label knodel.dev/allow-code=true`"
    assert any(allowed in line for line in conversion.to_do) == (expected != "sklearn")


def test_a_bucket_and_a_path_are_a_uri() -> None:
    storage = {"key": "minio", "path": "iris/model.onnx", "parameters": {"bucket": "models"}}
    conversion = convert(service({"onnx": {"storage": storage}}))
    assert spec_of(conversion)["storageUri"] == "s3://models/iris/model.onnx"
    assert listed(conversion) == {"spec.predictor.onnx.storage.key": "a Model names the Secret of its store"}


@pytest.mark.parametrize("key", [{"key": "minio"}, {}])
def test_a_store_may_be_named(key: dict[str, str]) -> None:
    document = service({"onnx": {"storage": {**key, "path": "/iris/model.onnx"}}})
    conversion = convert(document, {"minio": "s3://models/", "default": "s3://models"})
    assert spec_of(conversion)["storageUri"] == "s3://models/iris/model.onnx"
    assert listed(conversion) == {}
    assert unaccounted(document, conversion) == []


LEFT_OUT: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"scaleMetric": "rps", "scaleTarget": 5}, {}, "spec.predictor.scaleTarget", "replicas follow concurrent requests"),
    ({"maxReplicas": 0}, {}, "spec.predictor.maxReplicas", "a Model has a limit of replicas"),
    ({"timeout": 9999}, {}, "spec.predictor.timeout", "must be"),
    ({"containerConcurrency": -1}, {}, "spec.predictor.containerConcurrency", "must be"),
    ({"batcher": {"maxBatchSize": 8, "maxLatency": 5000}}, {}, "spec.predictor.batcher.maxLatency", "must be"),
    ({"logger": {"mode": "all", "url": "http://sink"}}, {}, "spec.predictor.logger", "payloads are not logged"),
    ({"nodeSelector": {"gpu": "yes"}}, {}, "spec.predictor.nodeSelector", "placement"),
    ({"tolerations": [{"key": "gpu"}]}, {}, "spec.predictor.tolerations", "placement"),
    ({"workerSpec": {"size": 2}}, {}, "spec.predictor.workerSpec", "a replica is one Pod"),
    ({"volumes": [{"name": "v"}]}, {}, "spec.predictor.volumes[0].name", "a Model has no such field"),
    ({"containers": [{"name": "proxy"}]}, {}, "spec.predictor.containers", "no further containers"),
    ({}, {"args": ["--a=b"]}, "spec.predictor.model.args", "options of KServe's server"),
    ({}, {"env": [{"name": "A", "value": "b"}]}, "spec.predictor.model.env", "no environment variables"),
    ({}, {"runtime": "my-runtime"}, "spec.predictor.model.runtime", "a name in the platform's settings"),
    ({}, {"image": "mine:1"}, "spec.predictor.model.image", "the image is the platform's"),
    ({}, {"protocolVersion": "grpc-v2"}, "spec.predictor.model.protocolVersion", "no gRPC port"),
    ({}, {"ports": [{"name": "h2c"}]}, "spec.predictor.model.ports[0]", "no gRPC port"),
    ({}, {"env": [{"name": "A"}]}, "spec.predictor.model.env", "no environment variables"),
    (
        {},
        {"resources": {"limits": {"nvidia.com/gpu": 1}}},
        "spec.predictor.model.resources.limits[nvidia.com/gpu]",
        "Models have no GPUs yet",
    ),
    (
        {},
        {"resources": {"limits": {"cpu": 2}, "requests": {"cpu": 1}}},
        "spec.predictor.model.resources.requests.cpu",
        "requests and limits of a replica are equal",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("predictor", "model", "path", "why"), LEFT_OUT)
def test_a_field_that_no_model_has_is_listed(
    predictor: dict[str, Any], model: dict[str, Any], path: str, why: str
) -> None:
    document = service({**onnx(**model), **predictor})
    conversion = convert(document)
    assert why in listed(conversion)[path]
    assert unaccounted(document, conversion) == []
    assert spec_of(conversion)["storageUri"] == "s3://models/iris"


def test_a_batcher_without_fields_has_kserves_default() -> None:
    assert spec_of(convert(service({**onnx(), "batcher": {}})))["batching"] == {"maxBatchSize": 32}
    assert "batching" not in spec_of(convert(service({**onnx(), "batcher": {"maxBatchSize": 1}})))


def test_a_transformer_and_an_explainer_are_listed() -> None:
    document = service(onnx())
    document["spec"] |= {"transformer": {"containers": [{"image": "t"}]}, "explainer": {"art": {"type": "x"}}}
    assert set(listed(convert(document))) == {"spec.transformer", "spec.explainer"}


NOT_CONVERTED: list[tuple[dict[str, Any], str]] = [
    (service({"pytorch": {"storageUri": "gs://models/m"}}), "no engine serves the format pytorch"),
    (
        service({"model": {"modelFormat": {"name": "nope"}, "storageUri": "s3://models/m"}}),
        "the format 'nope' is unknown",
    ),
    (service({"model": {"modelFormat": {}, "storageUri": "s3://models/m"}}), "modelFormat.name is missing"),
    (service({"model": {"modelFormat": {"name": 7}, "storageUri": "s3://models/m"}}), "is not a text"),
    (service(onnx(storageUri="abfs://c/m")), "the scheme 'abfs' is unknown"),
    (service(onnx(storageUri="pvc://${PVC_NAME}/m")), "spec.storageUri of the Model must be"),
    (service(onnx(storageUri="")), "the model has no storageUri"),
    (service({"onnx": {"storage": {"key": "k", "path": "p"}}}), "the store is in a Secret of the cluster"),
    (service({"containers": [{"image": "mine"}]}), "a container with a program of its own is not a model"),
    (service({"containers": [{}, {}]}), "several containers are not a model"),
    (service({**onnx(), "sklearn": {}}), "it has several models: model, sklearn"),
    (service({}), "it has no model"),
    (service([]), "spec.predictor is missing"),
    (service(onnx(), name="Upper"), "metadata.name of the Model"),
    (service(onnx(), name=""), "metadata.name is missing"),
    ({**service({}), "spec": {"default": {"predictor": {}}}}, "spec.default is of v1alpha2"),
    ({"apiVersion": "serving.kserve.io/v1alpha1", "kind": "InferenceGraph"}, "a graph of models is not a model"),
    ({"apiVersion": "serving.kserve.io/v1alpha1", "kind": "TrainedModel"}, "a model of a server of many models"),
    ({"apiVersion": "serving.kserve.io/v1alpha1", "kind": "ClusterServingRuntime"}, "an image of a model server"),
    ({"apiVersion": "serving.kserve.io/v1alpha2", "kind": "LLMInferenceService"}, "large language models"),
    ({"apiVersion": "v1", "kind": "Secret"}, "it is not a model of KServe or Knative"),
    ({"apiVersion": "knodel.dev/v1alpha1", "kind": "Model"}, "it is a Model already"),
    ({}, "kind is missing"),
]


@pytest.mark.parametrize(("document", "why"), NOT_CONVERTED)
def test_an_object_that_is_no_model_is_not_converted(document: dict[str, Any], why: str) -> None:
    conversion = convert(document)
    assert conversion.models == ()
    (reason,) = conversion.left_out
    assert why in reason.why
    assert reason.instead


def test_another_name_in_requests_is_listed() -> None:
    for same in (["--model_name=iris"], ["--model_name", "iris"]):
        assert convert(service(onnx(args=same))).left_out == ()
    other = convert(service(onnx(args=["--model_name", "flowers"])))
    assert listed(other) == {"spec.predictor.model.args[1]": "requests name the Model"}
    triton = convert(service({"triton": {"storageUri": "gs://models/repository"}}))
    assert "/v2/models/iris" in triton.to_do[0]


def test_secrets_are_not_shown() -> None:
    conversion = convert(service(onnx(env=[]), annotations={"my-token": "s3cret"}))
    assert [field.value for field in conversion.left_out if "token" in field.path] == ["…"]
    uris = [f"{scheme}://user:passw0rd@models.test/m" for scheme in ("https", "s3", "oci", "ftp")]
    for uri in (*uris, "ftp://models.test/m?sig=passw0rd"):
        assert "passw0rd" not in str(convert(service(onnx(storageUri=uri))))
    server = {"image": "kserve/sklearnserver", "args": [f"--model_dir={uris[-1]}"]}
    assert "passw0rd" not in str(convert(service({"containers": [server]})))


def test_annotations_may_be_no_texts() -> None:
    (model,) = convert(service(onnx(), annotations={"autoscaling.knative.dev/class": 5})).models
    read_model(model)


@pytest.mark.parametrize("scheme", ["oci+fetch", "oci+native", "oci"])
def test_images_are_one_scheme(scheme: str) -> None:
    assert spec_of(convert(service(onnx(storageUri=f"{scheme}://r.test/m:1"))))["storageUri"] == "oci://r.test/m:1"


_KEYS = ["model", "minReplicas", "timeout", "batcher", "containers", "resources", "limits", "args", "name", "x.y/z"]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(more=st.dictionaries(st.sampled_from([key for key in _KEYS if key != "model"]), _JSON), model=_JSON, other=_JSON)
def test_no_field_is_lost(more: dict[str, Any], model: Any, other: Any) -> None:
    known = onnx(**(model if isinstance(model, dict) else {}))
    document = service({**more, **known}, annotations=other if isinstance(other, dict) else {})
    document["spec"]["transformer"] = other
    conversion = convert(document)
    if conversion.models:
        read_model(conversion.models[0])
        assert unaccounted(document, conversion) == []
    else:
        assert len(conversion.left_out) == 1
