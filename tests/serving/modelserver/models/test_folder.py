"""Find the models of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.engines.base.errors import UnknownFormat
from serving.modelserver.base.assignment import ModelBounds
from serving.modelserver.base.errors import BadOptions
from serving.modelserver.models.folder import find_model, models_in

BOUNDS = ModelBounds(4, 300.0, 1.0)


def names(folder: Path, format: str = "") -> list[str]:
    return [model.name for model in models_in(folder, format, BOUNDS)]


def test_folders_and_files_of_known_formats_are_models_by_their_names(tmp_path: Path) -> None:
    for name in ("iris.skops", "digits.v2.onnx", "README.md", ".hidden.onnx", "notes.txt"):
        (tmp_path / name).touch()
    for name in ("flowers", "lost+found", ".git"):
        (tmp_path / name).mkdir()
    assert names(tmp_path) == ["digits", "flowers", "iris"]
    digits = models_in(tmp_path, "", BOUNDS)[0]
    assert digits.storage_uri == (tmp_path / "digits.v2.onnx").as_uri()
    assert (digits.revision, digits.bounds, digits.format) == ("digits-00001", BOUNDS, "")


def test_of_a_named_format_only_its_files_are_models(tmp_path: Path) -> None:
    for name in ("iris.skops", "digits.onnx", "old.pkl"):
        (tmp_path / name).touch()
    assert names(tmp_path, "pickle") == ["old"]
    with pytest.raises(UnknownFormat, match="tarot"):
        names(tmp_path, "tarot")


@pytest.mark.parametrize("name", ["Iris.onnx", "a_b.onnx", "-a.onnx", "x" * 58 + ".onnx", "ä.onnx"])
def test_what_cannot_be_a_name_is_refused_with_the_remedy(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(BadOptions, match="use a name of"):
        names(tmp_path)


def test_one_name_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "iris").mkdir()
    (tmp_path / "iris.onnx").touch()
    with pytest.raises(BadOptions, match="both named 'iris'"):
        names(tmp_path)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match="--models"):
        names(tmp_path / "nowhere")


def test_what_came_later_is_found(tmp_path: Path) -> None:
    assert find_model(tmp_path, "iris", "", BOUNDS) is None
    (tmp_path / "iris.onnx").touch()
    found = find_model(tmp_path, "iris", "", BOUNDS)
    assert found is not None and found.storage_uri.endswith("/iris.onnx")
