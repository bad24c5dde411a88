"""Artifacts in local files and folders."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.storage.base.artifact import Artifact
from serving.storage.base.digest import of_bytes, of_folder
from serving.storage.base.disk import DEEPEST
from serving.storage.base.errors import StorageError
from serving.storage.fetch import fetch
from serving.storage.kept import digest_at, keep
from serving.storage.sources.local import LocalPath

SAVED_MODEL: Mapping[str, bytes] = {
    "saved_model.pb": b"graph", "variables/variables.index": b"index",
    "variables/variables.data-00000-of-00001": b"data",
}  # fmt: skip
CONTENT = b"a model"
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


def get(path: Path, digest: str = "") -> Artifact:
    return fetch(path.as_uri(), digest, Path("/nonexistent"), frozenset())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model folder"
    (made / "sub").mkdir(parents=True)
    for name, content in (("a-b.onnx", b"1"), ("a.onnx", b"2"), ("sub/ä.bin", b"3"), ("Z", b"4")):
        (made / name).write_bytes(content)
    return made


def sha256sum(folder: Path) -> str:
    """Return the digest of a folder as computed by a shell."""
    script = r"find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1"
    done = subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    return f"sha256:{done.stdout.strip()}"


def test_a_file_is_read_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a model.onnx"
    path.write_bytes(CONTENT)
    artifact = get(path, DIGEST)
    assert (artifact.names(), artifact.read("a model.onnx")) == (["a model.onnx"], CONTENT)


def test_a_folder_has_the_digest_that_sha256sum_tells(folder: Path) -> None:
    artifact = get(folder, sha256sum(folder))
    assert artifact.names() == ["Z", "a-b.onnx", "a.onnx", "sub/ä.bin"]
    assert artifact.read("sub/ä.bin") == b"3"


@given(st.dictionaries(st.text("ab-/.ä", min_size=1, max_size=5), st.binary(max_size=3), max_size=5))
def test_the_digest_of_a_folder_does_not_depend_on_the_order(files: dict[str, bytes]) -> None:
    digests = {name: of_bytes(content) for name, content in files.items()}
    assert of_folder(digests) == of_folder(dict(reversed(digests.items())))


def write_saved_model(folder: Path, files: Mapping[str, bytes], mode: int = 0o644) -> Path:
    """Write a SavedModel with an empty `assets` folder, as TensorFlow does."""
    (folder / "assets").mkdir(parents=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
        (folder / name).chmod(mode)
        os.utime(folder / name, (mode, mode))
    return folder


def test_the_digest_of_a_folder_is_of_names_and_bytes_alone(tmp_path: Path) -> None:
    first = write_saved_model(tmp_path / "first", SAVED_MODEL)
    other = write_saved_model(tmp_path / "other", dict(reversed(tuple(SAVED_MODEL.items()))), 0o400)
    (other / "assets").rmdir()
    (other / "assets.extra" / "empty").mkdir(parents=True)
    expected = of_folder({name: of_bytes(content) for name, content in SAVED_MODEL.items()})
    assert [get(folder).digest for folder in (first, other)] == [expected] * 2
    assert [digest_at(LocalPath(folder), "uri") for folder in (first, other)] == [expected] * 2
    assert keep(LocalPath(other), "uri", "", tmp_path / "kept", 1 << 20) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"variables/variables.index": b"other"},
        {"variables/variables.index": b"data", "variables/variables.data-00000-of-00001": b"index"},  # exchanged
        {"fingerprint.pb": b""},
    ],
    ids=["changed", "exchanged", "added"],
)
def test_a_folder_with_one_other_file_is_refused_with_both_digests(tmp_path: Path, change: dict[str, bytes]) -> None:
    recorded = get(write_saved_model(tmp_path / "before", SAVED_MODEL)).digest
    present = write_saved_model(tmp_path / "present", {**SAVED_MODEL, **change})
    with pytest.raises(StorageError, match=recorded) as error:
        get(present, recorded)
    assert get(present).digest in str(error.value)


@pytest.mark.parametrize("name", SAVED_MODEL)
def test_a_folder_without_one_file_or_with_another_name_is_another_version(tmp_path: Path, name: str) -> None:
    folder = write_saved_model(tmp_path / "folder", SAVED_MODEL)
    recorded = get(folder).digest
    (folder / name).rename(folder / f"{name}.old")
    renamed = get(folder).digest
    (folder / f"{name}.old").unlink()
    assert len({recorded, renamed, get(folder).digest}) == 3


@pytest.mark.bad_input("artifact-changed")
def test_another_digest_is_refused_with_both(folder: Path) -> None:
    right, wrong = sha256sum(folder), "sha256:" + "0" * 64
    with pytest.raises(StorageError) as error:
        get(folder, wrong)
    assert right in str(error.value) and wrong in str(error.value)


@pytest.mark.parametrize("digest", ["sha256:abc", "md5:" + "0" * 32, "sha256:" + "A" * 64, "0" * 64])
def test_what_is_no_digest_is_refused(tmp_path: Path, digest: str) -> None:
    with pytest.raises(StorageError, match="digest"):
        get(tmp_path, digest)


@pytest.mark.bad_input("artifact-changed")
@pytest.mark.fault("M2")
def test_a_file_of_the_folder_that_changes_after_the_check_is_refused(folder: Path) -> None:
    artifact = get(folder, sha256sum(folder))
    (folder / "Z").write_bytes(b"other")
    with pytest.raises(StorageError, match="changed"):
        artifact.read("Z")


@pytest.mark.fault("M1")
def test_a_missing_shard_is_refused(folder: Path) -> None:
    digest = sha256sum(folder)
    (folder / "sub" / "ä.bin").unlink()
    with pytest.raises(StorageError, match="digest"):
        get(folder, digest)


@pytest.mark.bad_input("artifact-onnx")
def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_not(folder: Path, tmp_path: Path) -> None:
    (folder / "inside").symlink_to("Z")
    assert get(folder).read("inside") == b"4"
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "outside").symlink_to("../secret")
    with pytest.raises(StorageError, match="outside"):
        get(folder).names()
    with pytest.raises(StorageError):
        get(folder).read("outside")


@pytest.mark.parametrize("count", [DEEPEST - 1, DEEPEST, 1500])
def test_a_folder_is_only_so_deep(tmp_path: Path, count: int) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.onnx").write_bytes(CONTENT)
    opened = os.open(model, os.O_RDONLY)
    for _ in range(count):  # a path of this length cannot be given at once
        os.mkdir("a", dir_fd=opened)
        outer, opened = opened, os.open("a", os.O_RDONLY, dir_fd=opened)
        os.close(outer)
    os.close(opened)
    try:
        if count < DEEPEST:
            assert get(model).names() == ["model.onnx"]
            assert keep(LocalPath(model), "m", "", tmp_path / "kept", 1 << 20)
            return
        with pytest.raises(StorageError, match="nested folders, the limit"):
            get(model)
        with pytest.raises(StorageError, match="nested folders, the limit"):
            keep(LocalPath(model), "m", "", tmp_path / "kept", 1 << 20)
    finally:
        subprocess.run(["rm", "-r", model], check=True)  # deeper than `shutil.rmtree` can go


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "sub", "missing", "Z\0"])
def test_only_files_of_the_folder_are_read(folder: Path, name: str) -> None:
    with pytest.raises(StorageError):
        get(folder).read(name)


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="regular"):
        get(tmp_path / "pipe")


def test_what_is_not_there_is_named_by_its_uri(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as error:
        get(tmp_path / "missing.onnx")
    assert str(error.value).startswith((tmp_path / "missing.onnx").as_uri())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "uri",
    ["file://host/x", "file:x", "/x", "", "ftp://x/y", "s3://b/k", "file:///x?y", "file:///x#y", "file:///a%00b",
     "http:///x", "http://u:p@host/x", "http://host:99999/x", "http://ho st/x", "http://host\r\n/x", "HTTP//x",
     "http://ex\u00e4mple/x", "http://host\\@other/x", "file://[x/m.onnx", "file:///" + 300 * "x" + "/m.onnx"],
)  # fmt: skip
def test_a_uri_that_cannot_be_meant_is_refused_on_one_line(uri: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError) as error:
        fetch(uri, "", tmp_path, frozenset())
    assert "\n" not in str(error.value) and "u:p" not in str(error.value)
