"""Folders with numbered versions, as TensorFlow Serving reads them: the newest is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.engines.layouts.detect import find_layout
from serving.storage.fetch import fetch
from serving.storage.kept import digest_at
from serving.storage.sources.local import LocalPath


def files_of(folder: Path, *names: str, digest: bool = False) -> list[str]:
    """Return the files that the engine gets from a folder with these files, each with its name as content."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    uri = folder.as_uri()
    given = digest_at(LocalPath(folder), uri) if digest else ""
    artifact = find_layout(fetch(uri, given, folder.parent / "cache", frozenset()), "m").artifact
    return [artifact.read(name).decode() for name in artifact.names()]


@pytest.mark.parametrize("digest", [False, True])
def test_the_newest_version_is_served(tmp_path: Path, digest: bool) -> None:
    names = ("2/model.onnx", "10/model.onnx", "10/more/data.bin", "0003/model.onnx")
    assert files_of(tmp_path / "m", *names, digest=digest) == ["10/model.onnx", "10/more/data.bin"]


@pytest.mark.parametrize("names", [("1/a.onnx", "b.onnx"), ("1/a.onnx", "v2/a.onnx"), ("0/a.onnx",), ("a/1/m.onnx",)])
def test_any_other_folder_is_served_as_it_is(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert files_of(tmp_path / "m", *names) == sorted(names)
