"""Uploads to OCI registries."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.storage.base.errors import HttpStatusError, StorageError, TransferInterrupted
from serving.storage.fetch import StorageOptions, fetch
from serving.storage.upload import content, image
from serving.storage.upload.docker_login import docker_login
from serving.storage.upload.upload import UploadedArtifact, locate, upload
from tests.serving.storage.archives import MODEL, tar
from tests.serving.storage.conftest import LOOPBACK
from tests.serving.storage.uploads.registry import LOGIN, PushRegistry, running_registry

PART = 1 << 16
FILES = {"config.json": b"{}", "empty": b"", "sub/a": b"x" * 600, "weights-1.bin": os.urandom(2 * PART + 7),
         "ä" * 60 + "/weights-2.bin": os.urandom(PART)}  # fmt: skip


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PushRegistry]:
    """Run a registry with the user's login in a Docker configuration."""
    monkeypatch.setattr(content, "PART", PART)
    monkeypatch.setattr(image, "PART", PART)
    for running in running_registry():
        (tmp_path / "config.json").write_text(json.dumps({"auths": {running.host: {"auth": LOGIN}}}))
        yield running


def put(path: Path, registry: PushRegistry, cache: Path) -> UploadedArtifact:
    return upload(path, f"oci://{registry.host}/team/models", {"DOCKER_CONFIG": str(cache)}, cache)


def loaded(stored: UploadedArtifact, tmp_path: Path) -> dict[str, bytes]:
    """Return what a replica loads, after it has verified the digest."""
    options = StorageOptions({"DOCKER_CONFIG": str(tmp_path)})
    artifact = fetch(stored.uri, stored.digest, tmp_path / "replica", LOOPBACK, options=options)
    return {name: artifact.read(name) for name in artifact.names()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / "m" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "m" / name).write_bytes(text)
    return tmp_path / "m"


def test_a_folder_is_sent_once_and_loaded_by_its_digest(registry: PushRegistry, folder: Path, tmp_path: Path) -> None:
    stored = put(folder, registry, tmp_path)
    assert loaded(stored, tmp_path) == FILES
    assert stored.sent == stored.size == registry.received
    registry.requests.clear()
    assert put(folder, registry, tmp_path).sent == 0
    assert [request.split()[0] for request in registry.requests] == ["HEAD", "GET", "HEAD"]  # 401, token, manifest
    assert locate(folder, f"oci://{registry.host}/team/models").uri == stored.uri


def test_a_new_version_sends_only_what_changed(registry: PushRegistry, folder: Path, tmp_path: Path) -> None:
    put(folder, registry, tmp_path)
    (folder / "config.json").write_text("{ }")
    stored = put(folder, registry, tmp_path)
    assert stored.sent < PART
    assert loaded(stored, tmp_path) == {**FILES, "config.json": b"{ }"}


@pytest.mark.parametrize(("name", "text", "files"), [("m.onnx", b"a model", {"m.onnx": b"a model"}),
                                                     ("m.tar.gz", tar(MODEL, "gz"), dict(MODEL))])  # fmt: skip
def test_a_file_and_an_archive_are_images_too(
    registry: PushRegistry, tmp_path: Path, name: str, text: bytes, files: dict[str, bytes]
) -> None:
    (tmp_path / name).write_bytes(text)
    assert loaded(put(tmp_path / name, registry, tmp_path), tmp_path) == files


@pytest.mark.usefixtures("retries_at_once")
def test_an_interrupted_upload_continues_with_the_missing_chunks(registry: PushRegistry, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(text := os.urandom(6 * PART))
    registry.break_after = 3 * PART
    with pytest.raises(TransferInterrupted, match="the same command continues the upload"):
        put(tmp_path / "m.onnx", registry, tmp_path)
    assert registry.manifests == {}
    registry.break_after, registry.received = None, 0
    stored = put(tmp_path / "m.onnx", registry, tmp_path)
    assert 3 * PART < stored.sent == registry.received < 4 * PART + 3000
    assert loaded(stored, tmp_path) == {"m.onnx": text}
    assert list((tmp_path / "uploads").iterdir()) == []


@pytest.mark.usefixtures("retries_at_once")
def test_an_upload_that_the_registry_dropped_starts_over(registry: PushRegistry, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(os.urandom(2 * PART))
    registry.break_after = PART
    with pytest.raises(TransferInterrupted):
        put(tmp_path / "m.onnx", registry, tmp_path)
    registry.break_after = None
    registry.uploads.clear()
    assert put(tmp_path / "m.onnx", registry, tmp_path).sent > 2 * PART


def test_a_registry_without_chunks_gets_whole_blobs(registry: PushRegistry, folder: Path, tmp_path: Path) -> None:
    registry.chunks = False
    stored = put(folder, registry, tmp_path)
    assert loaded(stored, tmp_path) == FILES


def test_without_a_login_the_docker_login_is_named(registry: PushRegistry, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").unlink()
    with pytest.raises(HttpStatusError, match=f"the login was refused.*`docker login {registry.host}`"):
        put(folder, registry, tmp_path)


@pytest.mark.parametrize(
    ("output", "login"), [('{"Username": "ann", "Secret": "password"}', LOGIN), ('{"Username": "<token>"}', ""),
                          ("credentials not found", "")],
)  # fmt: skip
def test_credential_helpers_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, login: str) -> None:
    helper = tmp_path / "docker-credential-own"
    helper.write_text(f"#!/bin/sh\ngrep -q registry.test || exit 1\necho '{output}'\n")
    helper.chmod(0o755)
    if login == "" and "not found" in output:
        helper.write_text(f"#!/bin/sh\necho '{output}'\nexit 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "config.json").write_text(json.dumps({"credHelpers": {"registry.test": "own"}}))
    assert docker_login({"DOCKER_CONFIG": str(tmp_path)}, "registry.test") == login


@pytest.mark.parametrize("helper", ["absent-helper", "../evil", 7])
def test_a_helper_that_cannot_be_run_is_named(tmp_path: Path, helper: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": helper}))
    with pytest.raises(StorageError, match="helper"):
        docker_login({"DOCKER_CONFIG": str(tmp_path)}, "registry.test")
