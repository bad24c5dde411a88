"""Uploads to S3, served by moto behind a proxy that counts and interrupts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from serving.storage.base import disk
from serving.storage.base.digest import of_bytes, of_folder
from serving.storage.base.errors import HttpStatusError, StorageError, TransferInterrupted
from serving.storage.fetch import StorageOptions, fetch
from serving.storage.upload import content
from serving.storage.upload.upload import UploadedArtifact, locate, upload
from tests.serving.storage.archives import MODEL, tar
from tests.serving.storage.conftest import LOOPBACK
from tests.serving.storage.uploads.conftest import Proxy, proxy_to
from tests.support.s3 import KEYS, fill, s3_server

pytest.importorskip("botocore")
pytest.importorskip("moto")

PREFIX = "s3://models/team"
PART = 5 << 20  # the least that S3 accepts


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[str, Any]]:
    """Run a store with the bucket `models`; return its URL and a client."""
    with s3_server() as endpoint:
        yield endpoint, fill(endpoint, "models", {})


@pytest.fixture
def proxy(bucket: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(content, "PART", PART)
    yield from proxy_to(bucket[0])


def put(path: Path, proxy: Proxy, cache: Path, **options: Any) -> UploadedArtifact:
    return upload(path, PREFIX, {**KEYS, "AWS_ENDPOINT_URL": proxy.url}, cache, **options)


def loaded(stored: UploadedArtifact, proxy: Proxy, tmp_path: Path) -> dict[str, bytes]:
    """Return what a replica loads, after it has verified the digest."""
    options = StorageOptions({**KEYS, "AWS_ENDPOINT_URL": proxy.url})
    artifact = fetch(stored.uri, stored.digest, tmp_path / "replica", LOOPBACK, options=options)
    return {name: artifact.read(name) for name in artifact.names()}


def folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(text)
    return path


def test_a_file_is_sent_once_under_its_digest(proxy: Proxy, tmp_path: Path) -> None:
    text = os.urandom(1000)
    (tmp_path / "m.onnx").write_bytes(text)
    first = put(tmp_path / "m.onnx", proxy, tmp_path)
    assert first.uri == f"{PREFIX}/sha256/{of_bytes(text)[7:]}/m.onnx" and first.digest == of_bytes(text)
    assert (first.sent, proxy.methods()) == (1000, ["HEAD", "PUT"])
    assert loaded(first, proxy, tmp_path) == {"m.onnx": text}
    proxy.methods()
    again = put(tmp_path / "m.onnx", proxy, tmp_path)
    assert (again.uri, again.sent, proxy.methods()) == (first.uri, 0, ["HEAD"])
    assert locate(tmp_path / "m.onnx", PREFIX).uri == first.uri


def test_an_archive_has_the_digest_of_its_bytes(proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "m.tar.gz").write_bytes(tar(MODEL, "gz"))
    assert loaded(put(tmp_path / "m.tar.gz", proxy, tmp_path), proxy, tmp_path) == dict(MODEL)


def test_a_folder_ends_with_its_listing(proxy: Proxy, bucket: tuple[str, Any], tmp_path: Path) -> None:
    files = {"a b+c%20.txt": os.urandom(10), "ä&<>.bin": b"", "sub/x": os.urandom(PART + 1)}
    stored = put(folder(tmp_path / "m", files), proxy, tmp_path)
    assert stored.digest == of_folder({name: of_bytes(text) for name, text in files.items()})
    listing = f"/models/team/sha256/{stored.digest[7:]}.files"
    assert re.match(f"PUT {listing}", [request for request in proxy.requests if not request.startswith("GET")][-1])
    text = bucket[1].get_object(Bucket="models", Key=listing.removeprefix("/models/"))["Body"].read()
    assert of_bytes(text) == stored.digest
    assert loaded(stored, proxy, tmp_path) == files
    proxy.methods()
    assert put(tmp_path / "m", proxy, tmp_path).sent == 0 and proxy.methods() == ["GET"]


def test_a_file_that_the_store_lost_is_sent_again_and_no_other(
    proxy: Proxy, bucket: tuple[str, Any], tmp_path: Path
) -> None:
    files = {"a": os.urandom(10), "b": os.urandom(20)}
    stored = put(folder(tmp_path / "m", files), proxy, tmp_path)
    bucket[1].delete_object(Bucket="models", Key=stored.uri.removeprefix("s3://models/") + "b")
    assert put(tmp_path / "m", proxy, tmp_path).sent == 20
    assert loaded(stored, proxy, tmp_path) == files


def test_without_the_right_to_list_each_file_is_looked_up(proxy: Proxy, tmp_path: Path) -> None:
    folder(tmp_path / "m", {"a": os.urandom(10), "b": os.urandom(20)})
    put(tmp_path / "m", proxy, tmp_path)
    proxy.refuse = lambda method, path, headers: (403, b"") if "list-type" in path else None
    assert put(tmp_path / "m", proxy, tmp_path).sent == 0


@pytest.mark.bad_input("artifact-uploads")
@pytest.mark.usefixtures("retries_at_once")
def test_an_interrupted_upload_sends_only_the_missing_parts(proxy: Proxy, tmp_path: Path) -> None:
    text = os.urandom(6 * PART + 7)
    (tmp_path / "m.onnx").write_bytes(text)
    proxy.break_after = 3 * PART
    with pytest.raises(TransferInterrupted, match="the same command continues the upload"):
        put(tmp_path / "m.onnx", proxy, tmp_path)
    (record,) = (tmp_path / "uploads").iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    proxy.break_after, proxy.received = None, 0
    stored = put(tmp_path / "m.onnx", proxy, tmp_path)
    assert 3 * PART <= stored.sent == proxy.received <= 5 * PART + 7  # of six parts, one to three were stored
    assert loaded(stored, proxy, tmp_path) == {"m.onnx": text}
    assert list((tmp_path / "uploads").iterdir()) == []


@pytest.mark.bad_input("artifact-uploads")
@pytest.mark.usefixtures("retries_at_once")
@pytest.mark.parametrize("damage", ["", "{", '{"session": 7}', '{"session": "of another store"}', "[" * 100_000])
def test_a_broken_record_starts_the_upload_over(proxy: Proxy, tmp_path: Path, damage: str) -> None:
    (tmp_path / "m.onnx").write_bytes(os.urandom(2 * PART))
    proxy.break_after = PART
    with pytest.raises(TransferInterrupted):
        put(tmp_path / "m.onnx", proxy, tmp_path)
    (record,) = (tmp_path / "uploads").iterdir()
    record.write_text(damage)
    proxy.break_after = None
    assert put(tmp_path / "m.onnx", proxy, tmp_path).sent == 2 * PART


def test_two_uploads_of_the_same_files_do_not_disturb_each_other(proxy: Proxy, tmp_path: Path) -> None:
    files = {"a": os.urandom(2 * PART), "b": os.urandom(10)}
    folder(tmp_path / "m", files)
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: put(tmp_path / "m", proxy, tmp_path), range(2)))
    assert both[0].uri == both[1].uri and loaded(both[0], proxy, tmp_path) == files


@pytest.mark.bad_input("artifact-uploads")
def test_a_file_that_changes_during_the_upload_is_refused(proxy: Proxy, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"1" * 10)

    def change(phase: str, done: int, total: int) -> None:
        if phase == "reading":
            path.write_bytes(b"2" * 10)

    with pytest.raises(StorageError, match="changed while it was uploaded"):
        put(path, proxy, tmp_path, progress=change)
    assert "PUT" not in proxy.methods()


def test_progress_reaches_the_size_and_counts_stored_bytes_at_once(proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(os.urandom(2 * PART))
    seen: list[tuple[str, int, int]] = []
    for _ in range(2):
        put(tmp_path / "m.onnx", proxy, tmp_path, progress=lambda *now: seen.append(now))
        assert seen[-1] == ("uploading", 2 * PART, 2 * PART)
    assert len([now for now in seen[::-1] if now[0] == "uploading"]) > 3 and seen[-2][0] == "reading"


@pytest.mark.bad_input("artifact-uploads")
@pytest.mark.usefixtures("retries_at_once")
@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (403, "<Error><Code>AccessDenied</Code><Message>User: arn:aws:iam::1:user/ann is not authorized with "
              "AKIAIOSFODNN7EXAMPLE</Message></Error>", ["403", "AccessDenied", "user/ann is not authorized"]),
        (404, "<Error><Code>NoSuchBucket</Code><Message>The bucket does not exist</Message></Error>",
         ["404", "NoSuchBucket", "bucket models"]),
        (500, "not XML", ["500"]),
    ],
)  # fmt: skip
def test_refusals_have_the_message_of_the_store(
    proxy: Proxy, tmp_path: Path, status: int, body: str, words: list[str]
) -> None:
    (tmp_path / "m.onnx").write_bytes(b"x")
    proxy.refuse = lambda method, path, headers: (status, body.encode()) if method == "PUT" else None
    with pytest.raises(HttpStatusError) as error:
        put(tmp_path / "m.onnx", proxy, tmp_path)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "AKIA" not in str(error.value) and "Signature" not in str(error.value)


@pytest.mark.bad_input("artifact-uploads")
def test_a_missing_bucket_is_named(proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"x")
    with pytest.raises(HttpStatusError, match=r"404.*bucket missing exists"):
        upload(tmp_path / "m.onnx", "s3://missing", {**KEYS, "AWS_ENDPOINT_URL": proxy.url}, tmp_path)


@pytest.mark.bad_input("artifact-uploads")
def test_without_credentials_the_login_is_named(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / "m.onnx").write_bytes(b"x")
    with pytest.raises(StorageError, match="aws configure"):
        upload(tmp_path / "m.onnx", PREFIX, {"AWS_ENDPOINT_URL": proxy.url}, tmp_path)


@pytest.mark.bad_input("artifact-uploads")
def test_missing_empty_and_leaving_paths_are_refused_before_a_request(proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    leaving = folder(tmp_path / "leaving", {"a": b"x"})
    (leaving / "out").symlink_to("/etc/hostname")
    for name, word in {"missing": "exists", "empty": "no files", "leaving": "outside"}.items():
        with pytest.raises(StorageError, match=word):
            put(tmp_path / name, proxy, tmp_path)
    assert proxy.requests == []


@pytest.mark.bad_input("artifact-uploads")
def test_more_than_a_replica_can_load_is_refused(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "m.onnx").open("wb") as file:
        file.truncate(disk.LARGEST_FILE + 1)
    with pytest.raises(StorageError, match="limit"):
        put(tmp_path / "m.onnx", proxy, tmp_path)


def test_without_room_for_records_the_upload_goes_on_with_one_warning(proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "uploads").write_text("not a folder")
    folder(tmp_path / "m", {"a": os.urandom(2 * PART), "b": os.urandom(2 * PART)})
    warnings: list[str] = []
    stored = put(tmp_path / "m", proxy, tmp_path, warn=warnings.append)
    assert stored.sent == 4 * PART and len(warnings) == 1 and "make room" in warnings[0]


def test_without_botocore_the_extra_is_named(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "botocore.session", None)
    (tmp_path / "m.onnx").write_bytes(b"x")
    with pytest.raises(StorageError, match=r"knodel\[s3\]"):
        put(tmp_path / "m.onnx", proxy, tmp_path)


def test_a_profile_gives_credentials_and_region(
    proxy: Proxy, bucket: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("[default]\naws_access_key_id = mine\naws_secret_access_key = x\n")
    (tmp_path / ".aws" / "config").write_text("[default]\nregion = eu-central-1\n")
    (tmp_path / "m.onnx").write_bytes(os.urandom(10))
    upload(tmp_path / "m.onnx", PREFIX, {"AWS_ENDPOINT_URL": proxy.url}, tmp_path)
    assert all(re.search(r"X-Amz-Credential=mine%2F\d+%2Feu-central-1%2Fs3", path) for path in proxy.requests)


@pytest.mark.usefixtures("retries_at_once")
def test_the_region_of_a_bucket_elsewhere_is_named(proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"x")
    proxy.refuse = lambda method, path, headers: (301, b"")
    proxy.refusal_headers = {"x-amz-bucket-region": "eu-central-1"}
    with pytest.raises(HttpStatusError, match=r"301 \(the bucket is in the region eu-central-1\).*AWS_REGION"):
        upload(tmp_path / "m.onnx", PREFIX, {**KEYS, "AWS_ENDPOINT_URL": proxy.url}, tmp_path)
