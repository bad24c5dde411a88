"""Kept copies: what they share with their source, when they are used, when they go."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from serving.storage import kept
from serving.storage.digest import of_bytes
from serving.storage.errors import StorageError
from serving.storage.fetch import StorageOptions, fetch

ROOM = 1 << 20


def load(source: Path, digest: str, folder: Path, limit: int = ROOM) -> dict[str, bytes]:
    """What a replica loads: file → bytes."""
    options = StorageOptions({}, kept=folder, kept_limit=limit)
    artifact = fetch(source.as_uri(), digest, folder.parent / "cache", frozenset(), options=options)
    return {name: artifact.read(name) for name in artifact.names()}


def digest_of(source: Path, folder: Path, limit: int = ROOM) -> str:
    """Keep the source."""
    from serving.storage.local import Place

    return kept.keep(Place(source), source.as_uri(), "", folder, limit)


def write_folder(place: Path) -> None:
    (place / "weights").mkdir(parents=True)
    (place / "model.onnx").write_bytes(b"graph")
    (place / "weights" / "a.bin").write_bytes(b"weights")


def write_archive(place: Path) -> None:
    write_folder(place.parent / "unpacked")
    with tarfile.open(place, "w:gz") as archive:
        archive.add(place.parent / "unpacked" / "model.onnx", "model.onnx")


def overwrite(place: Path) -> None:
    """In place, as through a hard link."""
    for file in [place] if place.is_file() else [file for file in place.rglob("*") if file.is_file()]:
        with file.open("r+b") as opened:
            opened.write(b"XX")


@pytest.mark.parametrize("change", ["overwrite", "delete"])
@pytest.mark.parametrize("name", ["model.onnx", "folder", "model.tar.gz"])
def test_what_was_kept_is_loaded_whatever_became_of_the_source(tmp_path: Path, name: str, change: str) -> None:
    source, folder = tmp_path / name, tmp_path / "kept"
    {"folder": write_folder, "model.tar.gz": write_archive}.get(name, lambda place: place.write_bytes(b"graph"))(source)
    digest = digest_of(source, folder)
    expected = load(source, digest, folder)
    assert b"graph" in expected.values()

    if change == "overwrite":
        overwrite(source)
    else:
        source.rename(tmp_path / "gone")

    assert load(source, digest, folder) == expected


def test_the_same_bytes_are_kept_once(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes(b"graph")
    assert digest_of(tmp_path / "a.onnx", tmp_path / "kept") == digest_of(tmp_path / "b.onnx", tmp_path / "kept")
    assert kept.size_of(tmp_path / "kept") == len(b"graph")


def test_a_replica_keeps_what_nobody_kept_before(tmp_path: Path) -> None:
    source, folder = tmp_path / "model.onnx", tmp_path / "kept"
    source.write_bytes(b"graph")
    load(source, "", folder)
    source.unlink()
    assert load(source, of_bytes(b"graph"), folder) == {"model.onnx": b"graph"}


def test_a_damaged_copy_is_not_loaded_and_made_anew_where_the_source_is_unchanged(tmp_path: Path) -> None:
    source, folder = tmp_path / "model.onnx", tmp_path / "kept"
    source.write_bytes(b"graph")
    digest = digest_of(source, folder)

    def damage() -> None:
        copy = next((folder / "files").rglob("file"))
        copy.chmod(0o600)
        copy.write_bytes(b"evil!")

    damage()
    assert load(source, digest, folder) == {"model.onnx": b"graph"}
    damage()
    source.write_bytes(b"other")
    with pytest.raises(StorageError, match="was expected"):
        load(source, digest, folder)


def test_what_does_not_fit_is_refused_with_the_remedy(tmp_path: Path) -> None:
    for name, content in (("a.onnx", b"graph"), ("b.onnx", b"other")):
        (tmp_path / name).write_bytes(content)
    digest_of(tmp_path / "a.onnx", tmp_path / "kept", 9)
    digest_of(tmp_path / "a.onnx", tmp_path / "kept", 9)
    with pytest.raises(StorageError, match=r"5 of 9 already: delete models .* KNODEL_KEPT_LIMIT"):
        digest_of(tmp_path / "b.onnx", tmp_path / "kept", 9)


@pytest.mark.parametrize("name", ["model.onnx", "folder", "model.tar.gz"])
def test_copies_go_when_no_version_needs_them_and_they_were_not_used_lately(tmp_path: Path, name: str) -> None:
    source, folder = tmp_path / name, tmp_path / "kept"
    {"folder": write_folder, "model.tar.gz": write_archive}.get(name, lambda place: place.write_bytes(b"graph"))(source)
    digest = digest_of(source, folder)
    for entry in folder.glob("*/*"):
        os.utime(entry, (1000, 1000))

    assert kept.collect(folder, {digest}, before=2000) == 0
    assert kept.collect(folder, {""}, before=500) == 0
    assert load(source, digest, folder)
    for entry in folder.glob("*/*"):
        os.utime(entry, (1000, 1000))
    assert kept.collect(folder, {""}, before=2000) > 0
    assert kept.size_of(folder) == 0


def test_a_copy_that_is_deployed_again_was_used_lately(tmp_path: Path) -> None:
    source, folder = tmp_path / "model.onnx", tmp_path / "kept"
    source.write_bytes(b"graph")
    digest_of(source, folder)
    for entry in folder.glob("*/*"):
        os.utime(entry, (1000, 1000))
    digest_of(source, folder)
    assert kept.collect(folder, set(), before=2000) == 0
