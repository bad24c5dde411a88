"""Fetching archives: download, verification and unpacking."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.storage.base.artifact import Artifact
from serving.storage.base.digest import of_bytes
from serving.storage.base.errors import StorageError
from serving.storage.fetch import fetch
from tests.serving.storage.archives import MODEL, tar, tar_entry, tar_of, zipped
from tests.serving.storage.conftest import LOOPBACK, Store

CONTENT = tar(MODEL, "gz")


def get(uri: str, tmp_path: Path, digest: str = "") -> Artifact:
    return fetch(uri, digest, tmp_path / "cache", LOOPBACK)


def check(artifact: Artifact) -> None:
    assert artifact.names() == sorted(MODEL)
    assert {name: artifact.read(name) for name in artifact.names()} == MODEL


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("digest", ["", of_bytes(CONTENT)], ids=["without a digest", "with its digest"])
def test_an_archive_becomes_a_folder(store: Store, tmp_path: Path, digest: str) -> None:
    check(get(store.file("/m.tar.gz?token=secret", CONTENT), tmp_path, digest))


def test_with_a_digest_it_is_downloaded_and_unpacked_once(store: Store, tmp_path: Path) -> None:
    uri = store.file("/m.tar.gz", CONTENT)
    paths = set()
    for _ in range(3):
        artifact = get(uri, tmp_path, of_bytes(CONTENT))
        check(artifact)
        paths.add(artifact.path)
    assert store.asked == ["/m.tar.gz"] and len(paths) == 1


def test_an_unpacked_file_that_was_damaged_is_unpacked_anew(store: Store, tmp_path: Path) -> None:
    uri = store.file("/m.tar.gz", CONTENT)
    place = get(uri, tmp_path, of_bytes(CONTENT)).path
    (place / "model.onnx").write_bytes(b"damaged")
    check(get(uri, tmp_path, of_bytes(CONTENT)))
    assert len(store.asked) == 2


def test_a_file_that_changes_after_the_check_is_refused(store: Store, tmp_path: Path) -> None:
    artifact = get(store.file("/m.tar.gz", CONTENT), tmp_path)
    (artifact.path / "model.onnx").write_bytes(b"damaged")
    with pytest.raises(StorageError, match="changed"):
        artifact.read("model.onnx")


def test_another_digest_is_refused_before_anything_is_unpacked(store: Store, tmp_path: Path) -> None:
    hostile = tar_of([tar_entry("../evil", b"x")])
    with pytest.raises(StorageError, match="digest"):
        get(store.file("/m.tar", hostile), tmp_path, of_bytes(CONTENT))
    assert files(tmp_path) == []


@pytest.mark.bad_input("artifact-archives")
def test_a_refused_archive_leaves_nothing(store: Store, tmp_path: Path) -> None:
    hostile = tar_of([tar_entry("model.onnx", b"x"), tar_entry("../evil", b"x")])
    with pytest.raises(StorageError, match="file name"):
        get(store.file("/m.tar", hostile), tmp_path, of_bytes(hostile))
    assert files(tmp_path) == []


def test_what_was_unpacked_is_found_by_the_digest_that_its_archive_had(store: Store, tmp_path: Path) -> None:
    uri = store.file("/m.tar.gz", CONTENT)
    first = get(uri, tmp_path)
    assert first.digest == of_bytes(CONTENT)
    assert get(uri, tmp_path, first.digest).path == first.path
    assert store.asked == ["/m.tar.gz"]


@pytest.mark.parametrize("digest", ["", of_bytes(CONTENT)], ids=["without a digest", "with its digest"])
def test_an_archive_on_this_machine_is_unpacked_too(tmp_path: Path, digest: str) -> None:
    (tmp_path / "m.tgz").write_bytes(CONTENT)
    check(get((tmp_path / "m.tgz").as_uri(), tmp_path, digest))
    assert (tmp_path / "m.tgz").read_bytes() == CONTENT


def test_a_folder_called_like_an_archive_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "m.zip").mkdir()
    (tmp_path / "m.zip" / "a").write_bytes(b"x")
    assert get((tmp_path / "m.zip").as_uri(), tmp_path).read("a") == b"x"


@pytest.mark.parametrize("name", MODEL)
def test_an_archive_with_one_other_file_is_refused_with_both_digests(store: Store, tmp_path: Path, name: str) -> None:
    uri = store.file("/m.tar", tar(MODEL))
    recorded = get(uri, tmp_path / "first").digest
    other = tar({**MODEL, name: b"other"})
    store.file("/m.tar", other)
    with pytest.raises(StorageError, match=f"{of_bytes(other)} but {recorded} was expected"):
        get(uri, tmp_path / "later", recorded)
    assert files(tmp_path / "later") == []
    check(get(uri, tmp_path / "first", recorded))  # from its cache


def test_two_archives_of_the_same_files_share_the_folder(store: Store, tmp_path: Path) -> None:
    other = zipped(MODEL.items())
    first = get(store.file("/m.tar.gz", CONTENT), tmp_path, of_bytes(CONTENT))
    second = get(store.file("/m.zip", other), tmp_path, of_bytes(other))
    check(second)
    assert len(files(tmp_path / "cache" / "folders")) <= 2 * len(MODEL) and first.digests == second.digests
