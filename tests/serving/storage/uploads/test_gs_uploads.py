"""Uploads to Google Cloud Storage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.storage.base.digest import of_bytes, of_folder
from serving.storage.base.errors import HttpStatusError, StorageError, TransferInterrupted
from serving.storage.fetch import StorageOptions, fetch
from serving.storage.upload import content
from serving.storage.upload.upload import UploadedArtifact, upload
from tests.serving.storage.conftest import LOOPBACK
from tests.serving.storage.uploads.google import UNIT, GoogleStore, running_store

pytest.importorskip("google.auth")

PREFIX = "gs://models/team"
PART = 4 * UNIT


@pytest.fixture
def google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GoogleStore]:
    """Run a store; the user has the key of a service account."""
    monkeypatch.setattr(content, "PART", PART)
    for store in running_store():
        (tmp_path / "key.json").write_text(store.service_account())
        yield store


def put(path: Path, google: GoogleStore, cache: Path, prefix: str = PREFIX) -> UploadedArtifact:
    key = str(cache / "key.json")
    return upload(path, prefix, {"STORAGE_EMULATOR_HOST": google.url, "GOOGLE_APPLICATION_CREDENTIALS": key}, cache)


def test_a_folder_is_sent_once_and_loaded_by_its_digest(google: GoogleStore, tmp_path: Path) -> None:
    files = {"a b+c%20.txt": os.urandom(10), "empty": b"", "sub/x": os.urandom(2 * PART + 1)}
    for name, text in files.items():
        (tmp_path / "m" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "m" / name).write_bytes(text)
    stored = put(tmp_path / "m", google, tmp_path)
    assert stored.digest == of_folder({name: of_bytes(text) for name, text in files.items()})
    assert of_bytes(google.objects[f"team/sha256/{stored.digest[7:]}.files"]) == stored.digest
    assert google.received == stored.sent == stored.size
    assert put(tmp_path / "m", google, tmp_path).sent == 0
    found = {key.removeprefix(stored.uri[len("gs://models/") :]): text for key, text in google.objects.items()}
    assert {name: found[name] for name in files} == files


def test_a_replica_loads_the_file(google: GoogleStore, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(text := os.urandom(1000))
    stored = put(tmp_path / "m.onnx", google, tmp_path)
    environ = {"STORAGE_EMULATOR_HOST": google.url, "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "key.json")}
    artifact = fetch(stored.uri, stored.digest, tmp_path / "cache", LOOPBACK, options=StorageOptions(environ))
    assert artifact.read("m.onnx") == text


@pytest.mark.usefixtures("retries_at_once")
def test_an_interrupted_upload_continues_after_the_stored_bytes(google: GoogleStore, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(text := os.urandom(4 * PART + 7))
    google.break_after = 2 * PART + UNIT + 5
    with pytest.raises(TransferInterrupted, match="the same command continues the upload"):
        put(tmp_path / "m.onnx", google, tmp_path)
    google.break_after, google.received = None, 0
    stored = put(tmp_path / "m.onnx", google, tmp_path)
    assert google.received == stored.sent == 2 * PART + 7 - UNIT  # nothing twice, but the five bytes of no whole unit
    assert google.objects[stored.uri.removeprefix("gs://models/")] == text


@pytest.mark.usefixtures("retries_at_once")
def test_a_session_that_the_store_dropped_starts_over(google: GoogleStore, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(os.urandom(2 * PART))
    google.break_after = PART
    with pytest.raises(TransferInterrupted):
        put(tmp_path / "m.onnx", google, tmp_path)
    google.break_after = None
    google.sessions.clear()
    assert put(tmp_path / "m.onnx", google, tmp_path).sent == 2 * PART


def test_a_missing_bucket_and_missing_rights_have_the_message_of_the_store(google: GoogleStore, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"x")
    with pytest.raises(HttpStatusError, match=r"404 \(The specified bucket does not exist"):
        put(tmp_path / "m.onnx", google, tmp_path, "gs://missing")
    with pytest.raises(HttpStatusError, match=r"401 \(Anonymous caller.*gcloud auth application-default login"):
        upload(tmp_path / "m.onnx", PREFIX, {"STORAGE_EMULATOR_HOST": google.url}, tmp_path)


@pytest.mark.parametrize("key", ["", "{}", "[]", '{"type": "external_account"}', '{"type": "authorized_user"}'])
def test_a_broken_login_is_refused_with_the_remedy(google: GoogleStore, tmp_path: Path, key: str) -> None:
    (tmp_path / "m.onnx").write_bytes(b"x")
    (tmp_path / "key.json").write_text(key)
    with pytest.raises(StorageError, match="gcloud auth application-default login"):
        put(tmp_path / "m.onnx", google, tmp_path)
