"""The modules that a zygote imports are found from the names of a model's files, also in folders of versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.modelserver.pool.preloading import modules_for


@pytest.mark.parametrize("name", ["model.onnx", "1/model.onnx", "left/1/model.onnx"])
def test_the_engine_of_the_files_is_imported_before_the_fork(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert modules_for(["--storage-uri", tmp_path.as_uri()])[-1] == "serving.engines.onnx.engine"


def test_nothing_more_is_imported_for_a_folder_without_a_known_file(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    assert "serving.engines" not in modules_for(["--storage-uri", tmp_path.as_uri()])[-1]
