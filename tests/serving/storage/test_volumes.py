"""`pvc://CLAIM/PATH` reads only below the mount point of the claim."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.storage.base.artifact import Artifact
from serving.storage.base.digest import of_bytes, of_folder
from serving.storage.base.errors import StorageError
from serving.storage.fetch import StorageOptions, fetch
from serving.storage.sources.local import fetch_local, pvc_uri_path
from serving.storage.sources.single_file import LocalArchiveSource
from serving.storage.transfer.progress import ignore_progress
from tests.serving.storage.archives import MODEL, tar


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    made = tmp_path / "pvc" / "models"
    (made / "magika").mkdir(parents=True)
    (made / "magika" / "model.onnx").write_bytes(b"a model")
    (tmp_path / "secret").write_bytes(b"secret")
    return made


def get(uri: str, tmp_path: Path, digest: str = "") -> Artifact:
    options = StorageOptions({}, volumes=tmp_path / "pvc")
    return fetch(uri, digest, tmp_path / "cache", frozenset(), options=options)


def test_a_file_a_folder_and_the_whole_claim(claim: Path, tmp_path: Path) -> None:
    assert get("pvc://models/magika/model.onnx", tmp_path, of_bytes(b"a model")).content == b"a model"
    assert get("pvc://models/magika", tmp_path).read("model.onnx") == b"a model"
    assert get("pvc://models/magika/", tmp_path).names() == ["model.onnx"]
    assert get("pvc://models", tmp_path).names() == ["magika/model.onnx"]


def test_an_archive_in_it_is_unpacked(claim: Path, tmp_path: Path) -> None:
    (claim / "m.tar").write_bytes(tar(MODEL))
    assert get("pvc://models/m.tar", tmp_path).names() == sorted(MODEL)


@pytest.mark.parametrize(
    "uri",
    ["pvc://", "pvc:///x", "pvc://MODELS/x", "pvc://../secret", "pvc://models/../../secret", "pvc://models/..",
     "pvc://models/%2e%2e/%2e%2e/secret", "pvc://models/missing", "pvc://other/x", "pvc://models/a%00b",
     "pvc://models/x?y", "pvc://models/x#y"],
)  # fmt: skip
def test_what_is_no_path_in_a_mounted_claim_is_refused(claim: Path, tmp_path: Path, uri: str) -> None:
    with pytest.raises(StorageError) as error:
        get(uri, tmp_path)
    assert "\n" not in str(error.value) and str(tmp_path) not in str(error.value)


def test_a_link_out_of_the_claim_is_refused(claim: Path, tmp_path: Path) -> None:
    (claim / "link").symlink_to(tmp_path / "secret")
    (claim / "circle").symlink_to("circle")
    for name in ("link", "circle"):
        with pytest.raises(StorageError):
            get(f"pvc://models/{name}", tmp_path)


@pytest.mark.parametrize("digest", ["", of_folder({"model.onnx": of_bytes(b"a model")})])
def test_a_folder_that_becomes_a_link_out_of_the_claim_is_not_followed(
    claim: Path, tmp_path: Path, digest: str
) -> None:
    artifact = get("pvc://models/magika", tmp_path, digest)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "model.onnx").write_bytes(b"secret")
    (claim / "magika").rename(claim / "before")
    (claim / "magika").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="outside"):
        artifact.read("model.onnx")


def test_a_file_that_becomes_a_link_after_it_was_found_is_not_followed(claim: Path, tmp_path: Path) -> None:
    place = pvc_uri_path("pvc://models/magika/model.onnx", "uri", tmp_path / "pvc")
    archive = LocalArchiveSource(place, "uri")
    place.path.unlink()
    place.path.symlink_to(tmp_path / "secret")
    with pytest.raises(StorageError, match="outside"):
        fetch_local(place, "uri", "")
    with pytest.raises(StorageError, match="outside"):
        archive.download(tmp_path, ignore_progress)


def test_a_claim_may_be_a_link_itself(claim: Path, tmp_path: Path) -> None:
    (tmp_path / "pvc" / "linked").symlink_to(claim)
    assert get("pvc://linked/magika", tmp_path).names() == ["model.onnx"]
