"""Stand-ins for the artifacts of KServe's samples are served from each kind of store, by the converted Model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.samples.serving import Stores, serve, stores

ARTIFACTS = [
    ("gs://kfserving-examples/models/sklearn/1.0/model", "joblib", "served"),
    ("https://github.com/a/b/blob/master/sklearn/frozen/model.joblib?raw=true", "joblib", "served"),
    ("oci://ghcr.io/my-org/my-sklearn-model:v1", "joblib", "served"),
    ("gs://kfserving-examples/models/xgboost/iris", "xgboost", "served"),
    ("gs://kfserving-examples/models/lightgbm/iris", "lightgbm", "served"),
    ("gs://kfserving-examples/models/onnx", "onnx", "served"),
    ("gs://kfserving-examples/models/tensorflow/flowers", "tensorflow", "served"),
    ("gs://kfserving-examples/models/triton/bert", "", "served"),
    ("gs://kfserving-examples/models/torchscript", "", "refused"),
    ("gs://kfserving-examples/models/paddle/resnet", "paddle", "served"),
]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores(tmp_path_factory.mktemp("stores")) as made:
        yield made


@pytest.mark.parametrize(("uri", "model_format", "outcome"), ARTIFACTS)
def test_a_stand_in_at_the_address_of_a_sample_is_served(
    here: Stores, uri: str, model_format: str, outcome: str
) -> None:
    assert serve(here, uri, model_format) == outcome
