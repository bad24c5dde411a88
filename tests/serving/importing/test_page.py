"""The table of fields in docs/from-kserve.md is that of the converter."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from serving.importing.convert import convert
from tests.serving.importing.test_inference_service import EVERYTHING, onnx, service

PAGE = Path(__file__).parents[3] / "docs" / "from-kserve.md"
ROW = re.compile(r"^\| `(\S+)` \| `(\S+)`(?:;.*|,.*)? \|$", re.MULTILINE)


def converted() -> dict[str, str]:
    """Return each path that some InferenceService carries, and the Model's field."""
    names = {"min-scale": "1", "max-scale": "2", "target": "3"}
    annotations = {f"autoscaling.knative.dev/{name}": value for name, value in names.items()}
    stored = onnx(storageUri=None, storage={"path": "p", "parameters": {"bucket": "models"}})
    documents = [yaml.safe_load(EVERYTHING), service(onnx(), annotations=annotations), service(stored)]
    return {path: to for document in documents for path, to in convert(document).carried.items()}


def test_the_table_has_each_field_that_is_carried() -> None:
    rows = dict(ROW.findall(PAGE.read_text()))
    carried = converted()
    assert {path: carried.get(path) for path in rows if path != "metadata.labels"} == {
        path: to for path, to in rows.items() if path != "metadata.labels"
    }
    unlisted = {path for path in carried if path not in rows and not path.startswith("metadata.labels")}
    assert unlisted == {
        "apiVersion",
        "kind",
        "spec.predictor.model.storage.parameters.bucket",  # with storage.path
        "spec.predictor.model.resources.requests.cpu",  # with the limit
        "spec.predictor.model.resources.requests.memory",
    }
