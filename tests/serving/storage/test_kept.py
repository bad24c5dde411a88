"""Kept copies: shared blocks, use, verification and deletion."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.storage import kept
from serving.storage.base import disk
from serving.storage.base.digest import of_bytes
from serving.storage.base.errors import RetryableStorageError, StorageError
from serving.storage.cache import FOLDERS
from serving.storage.fetch import StorageOptions, fetch
from serving.storage.folder_lock import lock_folder
from serving.storage.sources.local import LocalPath
from tests.support.mounts import MayNotMount
from tests.support.small_disk import fill, make_room, on_small_disk

ROOM = 1 << 20


def load(source: Path, digest: str, folder: Path, limit: int = ROOM) -> dict[str, bytes]:
    """Return the files that a replica loads, by name."""
    options = StorageOptions({}, kept=folder, kept_limit=limit)
    artifact = fetch(source.as_uri(), digest, folder.parent / "cache", frozenset(), options=options)
    return {name: artifact.read(name) for name in artifact.names()}


def digest_of(source: Path, folder: Path, limit: int = ROOM) -> str:
    """Keep the source and return its digest."""
    return kept.keep(LocalPath(source), source.as_uri(), "", folder, limit)


def write_folder(place: Path) -> None:
    (place / "weights").mkdir(parents=True)
    (place / "model.onnx").write_bytes(b"graph")
    (place / "weights" / "a.bin").write_bytes(b"weights")


def write_archive(place: Path) -> None:
    write_folder(place.parent / "unpacked")
    with tarfile.open(place, "w:gz") as archive:
        archive.add(place.parent / "unpacked" / "model.onnx", "model.onnx")


def make(place: Path) -> None:
    """Write a file, folder or archive, depending on the name."""
    writers = {"folder": write_folder, "model.tar.gz": write_archive}
    writers.get(place.name, lambda path: path.write_bytes(b"graph"))(place)


def overwrite(place: Path) -> None:
    """Overwrite a file in place, as through a hard link."""
    for file in [place] if place.is_file() else [file for file in place.rglob("*") if file.is_file()]:
        with file.open("r+b") as opened:
            opened.write(b"XX")


@pytest.mark.parametrize("change", ["overwrite", "delete"])
@pytest.mark.parametrize("name", ["model.onnx", "folder", "model.tar.gz"])
def test_what_was_kept_is_loaded_whatever_became_of_the_source(tmp_path: Path, name: str, change: str) -> None:
    source, folder = tmp_path / name, tmp_path / "kept"
    make(source)
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
    assert kept.total_size(tmp_path / "kept") == len(b"graph")


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


def damage(folder: Path) -> Path:
    """Overwrite a file of the only copy and return the entry that it is in."""
    copy = copies(folder)[0]
    copy.chmod(0o600)
    copy.write_bytes(b"evil!")
    kind, name = copy.relative_to(folder).parts[:2]
    return folder / kind / name


@pytest.mark.parametrize("name", ["model.onnx", "folder", "model.tar.gz"])
@pytest.mark.parametrize("door", ["fetch", "keep"])
def test_a_damaged_copy_whose_source_is_gone_is_named(tmp_path: Path, name: str, door: str) -> None:
    source, folder = tmp_path / name, tmp_path / "kept"
    make(source)
    digest = digest_of(source, folder)
    entry = damage(folder)
    source.rename(tmp_path / "gone")

    with pytest.raises(StorageError, match=f"its kept copy {entry}.* is damaged .*Put the files with digest {digest}"):
        if door == "keep":
            kept.keep(LocalPath(source), source.as_uri(), digest, folder, ROOM, verify=True)
        else:
            load(source, digest, folder)
    (tmp_path / "gone").rename(source)  # the remedy
    assert b"graph" in load(source, digest, folder).values()


def test_a_source_that_is_gone_without_a_copy_is_what_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"model\.onnx: cannot be opened") as failed:
        load(tmp_path / "model.onnx", of_bytes(b"graph"), tmp_path / "kept")
    assert "copy" not in str(failed.value)


@pytest.mark.parametrize("name", ["model.onnx", "folder", "model.tar.gz"])
@pytest.mark.parametrize("promised", [True, False])
def test_keeping_again_replaces_a_damaged_copy(tmp_path: Path, name: str, promised: bool) -> None:
    source, folder = tmp_path / name, tmp_path / "kept"
    make(source)
    digest = digest_of(source, folder)
    damage(folder)
    assert not kept.is_intact(folder, LocalPath(source), name, digest)
    kept.keep(LocalPath(source), name, digest if promised else "", folder, ROOM, verify=True)
    assert kept.is_intact(folder, LocalPath(source), name, digest)


@pytest.mark.parametrize("name", ["model.onnx", "folder", "model.tar.gz"])
def test_an_audit_finds_damaged_copies(tmp_path: Path, name: str) -> None:
    source, folder = tmp_path / name, tmp_path / "kept"
    make(source)
    digest_of(source, folder)
    assert kept.verify_copies(folder).damaged == []
    entry = damage(folder)
    assert kept.verify_copies(folder).damaged == [entry]


def test_an_audit_reads_the_smallest_copies_within_its_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    for content in (b"a" * 10, b"b" * 20, b"c" * 30):
        (tmp_path / "model.onnx").write_bytes(content)
        digest_of(tmp_path / "model.onnx", folder)
    assert kept.verify_copies(folder, 30) == (3, 2, 30, [])
    assert kept.verify_copies(folder) == (3, 3, 60, [])
    assert kept.verify_copies(tmp_path / "none") == (0, 0, 0, [])


def test_an_audit_finds_copies_that_cannot_be_read_and_archives_without_their_files(tmp_path: Path) -> None:
    source, folder = tmp_path / "model.tar.gz", tmp_path / "kept"
    make(source)
    digest = digest_of(source, folder)
    shutil.rmtree(next((folder / "folders").iterdir()))
    (folder / "files" / ("0" * 64)).mkdir()
    lost = folder / "archives" / digest.removeprefix("sha256:")
    assert kept.verify_copies(folder).damaged == [folder / "files" / ("0" * 64), lost]


def test_what_does_not_fit_is_refused_with_the_remedy(tmp_path: Path) -> None:
    for name, content in (("a.onnx", b"graph"), ("b.onnx", b"other")):
        (tmp_path / name).write_bytes(content)
    digest_of(tmp_path / "a.onnx", tmp_path / "kept", 9)
    digest_of(tmp_path / "a.onnx", tmp_path / "kept", 9)
    with pytest.raises(StorageError, match=r"5 bytes of 9 bytes: delete models .* KNODEL_KEPT_LIMIT"):
        digest_of(tmp_path / "b.onnx", tmp_path / "kept", 9)


@pytest.mark.parametrize("name", ["model.onnx", "folder", "model.tar.gz"])
def test_copies_go_when_no_version_needs_them_and_they_were_not_used_lately(tmp_path: Path, name: str) -> None:
    source, folder = tmp_path / name, tmp_path / "kept"
    make(source)
    digest = digest_of(source, folder)
    for entry in folder.glob("*/*"):
        os.utime(entry, (1000, 1000))

    assert kept.delete_unused(folder, {digest}, before=2000) == 0
    assert kept.delete_unused(folder, {""}, before=500) == 0
    assert load(source, digest, folder)
    for entry in folder.glob("*/*"):
        os.utime(entry, (1000, 1000))
    assert kept.delete_unused(folder, {""}, before=2000) > 0
    assert kept.total_size(folder) == 0


def test_a_copy_that_is_deployed_again_was_used_lately(tmp_path: Path) -> None:
    source, folder = tmp_path / "model.onnx", tmp_path / "kept"
    source.write_bytes(b"graph")
    digest_of(source, folder)
    for entry in folder.glob("*/*"):
        os.utime(entry, (1000, 1000))
    digest_of(source, folder)
    assert kept.delete_unused(folder, set(), before=2000) == 0


def copies(folder: Path) -> list[Path]:
    """Return the files of all copies, including incomplete ones."""
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["model.onnx", "folder", "model.tar.gz"])
def test_a_copy_that_cannot_be_read_now_stays(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder = tmp_path / name, tmp_path / "kept"
    make(source)
    digest = digest_of(source, folder)
    expected = load(source, digest, folder)
    source.rename(tmp_path / "gone")

    def fail(*_: object) -> str:
        raise StorageError("cannot be read (Too many open files)")

    with monkeypatch.context() as broken, pytest.raises(StorageError, match="cannot be read"):
        broken.setattr(disk, "open_regular", fail)
        load(source, digest, folder)
    assert load(source, digest, folder) == expected


def test_a_damaged_copy_stays_until_a_verified_one_replaces_it(tmp_path: Path) -> None:
    source, folder = tmp_path / "model.onnx", tmp_path / "kept"
    source.write_bytes(b"graph")
    digest = digest_of(source, folder)
    [copy] = copies(folder)
    copy.chmod(0o600)
    copy.write_bytes(b"evil!")
    source.write_bytes(b"other")
    with pytest.raises(StorageError, match="was expected"):
        load(source, digest, folder)
    assert copy.read_bytes() == b"evil!"
    copy.write_bytes(b"graph")
    assert load(source, digest, folder) == {"model.onnx": b"graph"}


@pytest.mark.parametrize("name", ["model.onnx", "folder", "model.tar.gz"])
@pytest.mark.parametrize("door", ["keep", "fetch"])
def test_a_source_that_changes_between_hash_and_copy_does_not_become_the_promised_version(
    tmp_path: Path, name: str, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = tmp_path / name, tmp_path / "kept"
    make(source)
    digest = kept.digest_at(LocalPath(source), "m")
    real = kept.digest_at

    def then_change(place: LocalPath, uri: str) -> str:
        found = real(place, uri)
        if source.is_dir():
            overwrite(source)
        else:
            source.write_bytes(source.read_bytes() + b"\0")
        return found

    monkeypatch.setattr(kept, "digest_at", then_change)
    with pytest.raises(StorageError, match=f"digest is sha256:[0-9a-f]+ but {digest} was expected"):
        if door == "keep":
            kept.keep(LocalPath(source), "m", digest, folder, ROOM)
        else:
            load(source, digest, folder)
    assert copies(folder) == []


@pytest.mark.parametrize("shares_blocks", [True, False])
def test_a_short_write_is_an_error_and_leaves_nothing(
    tmp_path: Path, shares_blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = tmp_path / "model.onnx", tmp_path / "kept"
    source.write_bytes(b"x" * 60_000)
    if not shares_blocks:
        monkeypatch.setattr(os, "copy_file_range", refuse_to_share)
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, most))  # the write that goes beyond is short, the next one fails
    try:
        with pytest.raises(StorageError, match=r"cannot be copied to .* \(File too large\): make room"):
            digest_of(source, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    assert copies(folder) == []
    assert digest_of(source, folder) == of_bytes(b"x" * 60_000)


def refuse_to_share(*_: object) -> int:
    raise OSError(errno.EXDEV, "Invalid cross-device link")


def on_disk_of_its_own(folder: Path, work: Callable[[], None]) -> None:
    """Run `work` while an empty disk of 1 MiB is mounted at `folder`, or skip the test."""
    folder.mkdir()
    try:
        on_small_disk(folder, 1, work)
    except MayNotMount as error:
        pytest.skip(f"a disk cannot be mounted here: {error}")


@pytest.mark.parametrize("name", ["model.onnx", "folder", "model.tar.gz"])
def test_a_full_disk_refuses_what_is_new_and_loses_nothing(tmp_path: Path, name: str) -> None:
    first, second, folder = tmp_path / "first" / name, tmp_path / "second" / name, tmp_path / "disk" / "kept"
    for source in (first, second):
        source.parent.mkdir()
        make(source)
    with (second if second.is_file() else second / "model.onnx").open("ab") as file:
        file.write(os.urandom(50_000))

    def work() -> None:
        digest = digest_of(first, folder)
        expected, before = load(first, digest, folder), copies(folder)
        fill(folder.parent)
        with pytest.raises(
            StorageError, match=r"second/.* cannot be copied to .* \(No space left on device\): make room"
        ):
            digest_of(second, folder)
        assert copies(folder) == before
        assert digest_of(first, folder) == digest  # needs no room
        assert load(first, digest, folder) == expected
        make_room(folder.parent)
        assert kept.is_kept(folder, LocalPath(second), digest_of(second, folder))

    on_disk_of_its_own(folder.parent, work)


def test_a_disk_that_may_only_be_read_refuses_what_is_new_and_serves_what_is_there(tmp_path: Path) -> None:
    first, second, folder = tmp_path / "first.onnx", tmp_path / "second.onnx", tmp_path / "disk" / "kept"
    first.write_bytes(b"graph")
    second.write_bytes(b"other graph")

    def work() -> None:
        digest = digest_of(first, folder)
        before = copies(folder)
        subprocess.run(["mount", "-o", "remount,ro", str(folder.parent)], check=True)
        for change in (
            lambda: digest_of(second, folder),
            lambda: kept.delete_unused(folder, set(), before=time.time() + 1),
        ):
            with pytest.raises(StorageError, match=f"kept model files {folder} .*Read-only file system.*writable"):
                change()
        assert copies(folder) == before
        assert digest_of(first, folder) == digest
        first.unlink()
        assert load(first, digest, folder) == {"first.onnx": b"graph"}

    on_disk_of_its_own(folder.parent, work)


@pytest.mark.parametrize("name", ["model.onnx", "folder", "model.tar.gz"])
def test_an_incomplete_copy_is_made_anew(tmp_path: Path, name: str) -> None:
    source, folder = tmp_path / name, tmp_path / "kept"
    make(source)
    digest = digest_of(source, folder)
    expected = load(source, digest, folder)
    for file in copies(folder):
        file.unlink()
    for inner in folder.glob("folders/*/*"):
        inner.rmdir()
    assert not kept.is_kept(folder, LocalPath(source), digest)
    assert digest_of(source, folder) == digest
    source.rename(tmp_path / "gone")
    assert load(source, digest, folder) == expected


def test_an_archive_counts_with_its_files(tmp_path: Path) -> None:
    big = tmp_path / "model.onnx"
    big.write_bytes(b"\0" * 50_000)
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        archive.add(big, "model.onnx")
    with pytest.raises(StorageError, match="has 50000 bytes, and kept model files use 0 bytes of 40000 bytes"):
        digest_of(tmp_path / "model.tar.gz", tmp_path / "kept", 40_000)
    assert copies(tmp_path / "kept") == []


def test_leftovers_of_ended_processes_do_not_count_and_are_deleted(tmp_path: Path) -> None:
    source, folder = tmp_path / "model.onnx", tmp_path / "kept"
    source.write_bytes(b"graph")
    digest_of(source, folder)
    left = folder / "temporary" / "0a" / "copy"
    left.mkdir(parents=True)
    (left / "file").write_bytes(b"x" * 100)
    assert kept.used_bytes(folder) == 5
    (tmp_path / "b.onnx").write_bytes(b"other")

    held = lock_folder(left.parent)  # as by the process that copies
    kept.delete_leftovers(folder)
    assert (left / "file").exists()
    assert held is not None
    held.release()
    kept.delete_leftovers(folder)
    assert not left.parent.exists()
    assert len(copies(folder)) == 1


def test_the_same_bytes_as_archive_and_as_file_are_two_copies(tmp_path: Path) -> None:
    write_archive(tmp_path / "model.tar.gz")
    file = tmp_path / "model.bin"
    file.write_bytes((tmp_path / "model.tar.gz").read_bytes())
    assert load(file, "", tmp_path / "kept") == {"model.bin": file.read_bytes()}
    assert load(tmp_path / "model.tar.gz", "", tmp_path / "kept") == {"model.onnx": b"graph"}


def test_a_name_that_is_not_utf_8_can_be_kept(tmp_path: Path) -> None:
    source = tmp_path / os.fsdecode(b"mod\xff.onnx")
    source.write_bytes(b"graph")
    assert list(load(source, "", tmp_path / "kept").values()) == [b"graph"]


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    with pytest.raises(StorageError, match="the folder has no files"):
        digest_of(tmp_path / "empty", tmp_path / "kept")


def test_an_archive_that_is_deployed_again_keeps_its_files(tmp_path: Path) -> None:
    source, folder = tmp_path / "model.tar.gz", tmp_path / "kept"
    make(source)
    digest = digest_of(source, folder)
    for entry in folder.glob("*/*"):
        os.utime(entry, (1000, 1000))
    assert digest_of(source, folder) == digest
    assert kept.delete_unused(folder, set(), before=2000) == 0


def test_a_folder_that_changes_while_it_is_copied_is_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = tmp_path / "folder", tmp_path / "kept"
    make(source)
    hashed: list[str] = []

    def changes_after_it_was_hashed(place: LocalPath, uri: str) -> str:
        hashed.append(digest_at(place, uri))
        if len(hashed) < 3:
            (place.path / "model.onnx").write_bytes(b"graph %d" % len(hashed))
        return hashed[-1]

    digest_at = kept.digest_at
    monkeypatch.setattr(kept, "digest_at", changes_after_it_was_hashed)
    assert digest_of(source, folder) == hashed[2]
    assert load(source, hashed[2], folder)["model.onnx"] == b"graph 2"
    assert len(list((folder / FOLDERS).iterdir())) == 1, "no copy of what was there before"


def test_a_folder_that_changes_at_each_try_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder = tmp_path / "folder", tmp_path / "kept"
    make(source)
    digest_at, times = kept.digest_at, iter(range(100))

    def changes_after_it_was_hashed(place: LocalPath, uri: str) -> str:
        found = digest_at(place, uri)
        (place.path / "model.onnx").write_bytes(b"graph %d" % next(times))
        return found

    monkeypatch.setattr(kept, "digest_at", changes_after_it_was_hashed)
    with pytest.raises(
        RetryableStorageError, match="was changed while it was copied: try again when no process writes to it"
    ):
        digest_of(source, folder)
    assert kept.used_bytes(folder) == 0
