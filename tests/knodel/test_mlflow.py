"""The Python package deploys a version of MLflow's registry."""

from __future__ import annotations

from pathlib import Path

import pytest

import knodel
from tests.support import mlflow_folders
from tests.support.mlflow_server import Registry, tracking_server
from tests.support.models import double

SIGNATURE = [{"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1]}}]


def test_a_version_of_the_registry_is_deployed_with_its_number(
    client: knodel.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = mlflow_folders.mlmodel({"onnx": {"data": "model.onnx"}}, SIGNATURE)
    mlflow_folders.write(tmp_path / "proxied" / "1" / "churn", described, model__onnx=double())
    registry = Registry(
        tmp_path / "proxied",
        versions={"churn": {"7": "mlflow-artifacts:/1/churn"}},
        aliases={("churn", "champion"): "7"},
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with tracking_server(registry) as url:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        model = client.deploy("models:/churn@champion", "churn")
        with pytest.raises(knodel.KnodelError, match="the registered model 'churn' has no alias 'gone'"):
            client.deploy("models:/churn@gone", "churn")
    assert model.name == "churn" and [one.version for one in client.history("churn")] == ["7"]
    assert client.predict("churn", [1.0, 2.5])["y"].tolist() == [2.0, 5.0]
    client.delete("churn")
