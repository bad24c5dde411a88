"""A pipeline of three models (PP-OCRv4: detector, classifier, recognizer) reads the same text when they are served."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.long import apps
from tests.long.served import served

PACKAGE = "rapidocr_onnxruntime"
"""Its wheel brings the models."""
STAGES = ("det", "cls", "rec")
PROGRAM = Path(apps.__file__).with_name("ocr.py")
CLOSE = 1e-3  # between scores: the same library adds in another order with another number of threads


def repository(folder: Path) -> Path:
    """A folder of models: `det`, `cls` and `rec`."""
    found = importlib.util.find_spec(PACKAGE)
    assert found is not None and found.origin is not None
    folder.mkdir()
    for stage in STAGES:
        (model,) = Path(found.origin).with_name("models").glob(f"*_{stage}_*.onnx")
        shutil.copyfile(model, folder / f"{stage}.onnx")
    return folder


def test_a_page_is_read_by_served_models_as_by_local_ones(tmp_path: Path) -> None:
    folder = repository(tmp_path / "models")
    with served(tmp_path / "log", "--models", str(folder)) as server:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), server.url, *STAGES], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])

    assert [text for text, _ in said["served"]] == [text for text, _ in said["local"]]
    assert [score for _, score in said["served"]] == pytest.approx([score for _, score in said["local"]], abs=CLOSE)
    assert "Knodel" in " ".join(text for text, _ in said["local"])
    assert min(said["asked"].values()) >= 1, said["asked"]
