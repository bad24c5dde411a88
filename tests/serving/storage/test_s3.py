"""S3 objects, archives and prefixes, served by moto."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from serving.storage.archives.folder_writer import FolderLimits
from serving.storage.base.artifact import Artifact
from serving.storage.base.digest import of_bytes, of_folder
from serving.storage.base.errors import StorageError
from serving.storage.fetch import StorageOptions, fetch
from serving.storage.sources import object_store
from serving.storage.sources.folder_download import RemoteFile, download_files
from serving.storage.sources.object_store import ObjectStoreSource, parse_page, split_bucket_uri
from serving.storage.sources.s3 import S3Bucket
from serving.storage.transfer.client import StoreRequest
from serving.storage.transfer.credentials import Credentials
from serving.storage.transfer.limits import TransferLimits
from serving.storage.transfer.progress import ignore_progress
from tests.serving.storage.archives import MODEL, tar
from tests.serving.storage.conftest import LOOPBACK, ONCE, Store, downloader
from tests.support.s3 import KEYS, fill, s3_server

pytest.importorskip("botocore")
pytest.importorskip("moto")

ODD: Mapping[str, bytes] = {"a b+c%20.txt": b"1", "ä&<>.bin": b"2", "sub/x": b"3"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The URL of a moto server."""
    with s3_server() as running:
        yield running


@pytest.fixture(scope="module")
def bucket(endpoint: str) -> Any:
    """Create the bucket `models` with the objects of the tests; return the client."""
    files = {
        "m.onnx": b"a model",
        "m.tar.gz": tar(MODEL, "gz"),
        "folder/": b"",
        **{f"folder/{name}": content for name, content in MODEL.items()},
        **{f"odd/{name}": content for name, content in ODD.items()},
        "folderish/evil": b"x",
        "hostile/../evil": b"x",
    }
    return fill(endpoint, "models", files)


def get(uri: str, endpoint: str, tmp_path: Path, digest: str = "", **environ: str) -> Artifact:
    options = StorageOptions({"AWS_ENDPOINT_URL": endpoint, **KEYS, **environ}, limits=ONCE)
    return fetch(uri, digest, tmp_path / "cache", LOOPBACK, options=options)


def content(artifact: Artifact) -> dict[str, bytes]:
    return {name: artifact.read(name) for name in artifact.names()}


def test_an_object(endpoint: str, bucket: object, tmp_path: Path) -> None:
    artifact = get("s3://models/m.onnx", endpoint, tmp_path, of_bytes(b"a model"))
    assert content(artifact) == {"m.onnx": b"a model"}


def test_an_archive(endpoint: str, bucket: object, tmp_path: Path) -> None:
    assert content(get("s3://models/m.tar.gz", endpoint, tmp_path)) == MODEL


@pytest.mark.parametrize("uri", ["s3://models/folder", "s3://models/folder/"])
def test_a_prefix_has_the_digest_of_a_folder(endpoint: str, bucket: object, tmp_path: Path, uri: str) -> None:
    promised = of_folder({name: of_bytes(content) for name, content in MODEL.items()})
    assert content(get(uri, endpoint, tmp_path, promised)) == MODEL


def test_keys_with_odd_signs(endpoint: str, bucket: object, tmp_path: Path) -> None:
    assert content(get("s3://models/odd", endpoint, tmp_path)) == ODD


def test_a_list_of_several_pages(endpoint: str, bucket: object) -> None:
    pages = S3Bucket("models", "uri", Credentials({"AWS_ENDPOINT_URL": endpoint, **KEYS}), page=2)
    objects = ObjectStoreSource("s3://models/odd", "odd", pages, downloader())
    assert dict(objects.keys("odd/")) == {f"odd/{name}": len(content) for name, content in ODD.items()}


def test_keys_that_could_lead_elsewhere_are_refused(endpoint: str, bucket: object, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="file name"):
        get("s3://models/hostile", endpoint, tmp_path)


@pytest.mark.parametrize("uri", ["s3://models/missing", "s3://missing/m.onnx"])
def test_what_is_not_there_is_said(endpoint: str, bucket: object, tmp_path: Path, uri: str) -> None:
    with pytest.raises(StorageError, match="404") as error:
        get(uri, endpoint, tmp_path)
    assert str(error.value).startswith(uri) and "Signature" not in str(error.value)


def test_another_digest_is_refused(endpoint: str, bucket: object, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="digest"):
        get("s3://models/folder", endpoint, tmp_path, "sha256:" + "0" * 64)


@pytest.mark.parametrize("name", MODEL)
def test_objects_that_were_replaced_by_others_of_the_same_name_are_refused_with_both_digests(
    endpoint: str, bucket: Any, tmp_path: Path, name: str
) -> None:
    for key, text in MODEL.items():
        bucket.put_object(Bucket="models", Key=f"live/{name}/{key}", Body=text)
    uri = f"s3://models/live/{name}"
    recorded = get(uri, endpoint, tmp_path / "first").digest
    assert recorded == of_folder({key: of_bytes(content) for key, content in MODEL.items()})

    bucket.put_object(Bucket="models", Key=f"live/{name}/{name}", Body=b"other")
    with pytest.raises(StorageError, match=recorded) as error:
        get(uri, endpoint, tmp_path / "later", recorded)
    assert get(uri, endpoint, tmp_path / "later").digest in str(error.value)
    assert content(get(uri, endpoint, tmp_path / "first", recorded)) == MODEL  # from its cache


def test_an_object_that_was_replaced_is_refused_with_both_digests(endpoint: str, bucket: Any, tmp_path: Path) -> None:
    old, new = b"old", b"new"
    bucket.put_object(Bucket="models", Key="live.onnx", Body=old)
    assert get("s3://models/live.onnx", endpoint, tmp_path / "first").digest == of_bytes(old)
    bucket.put_object(Bucket="models", Key="live.onnx", Body=new)
    with pytest.raises(StorageError, match=f"{of_bytes(new)} but {of_bytes(old)} was expected"):
        get("s3://models/live.onnx", endpoint, tmp_path / "later", of_bytes(old))


def test_a_private_endpoint_is_refused_unless_allowed(store: Store, tmp_path: Path) -> None:
    options = StorageOptions({"AWS_ENDPOINT_URL": store.url(""), **KEYS})
    with pytest.raises(StorageError, match="private"):
        fetch("s3://models/m.onnx", "", tmp_path / "cache", frozenset(), options=options)
    assert store.asked == []


def test_requests_are_signed_with_the_keys_of_the_secret(store: Store, tmp_path: Path) -> None:
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("of-the-secret\n")
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("secret")
    store.file("/models/m.onnx", b"a model")
    get("s3://models/m.onnx", store.url(""), tmp_path, KNODEL_CREDENTIALS=str(tmp_path))
    assert "X-Amz-Credential=of-the-secret%2F" in store.asked[0] and "X-Amz-Signature=" in store.asked[0]


def test_without_keys_nothing_is_signed(store: Store, tmp_path: Path) -> None:
    store.file("/models/m.onnx", b"a model")
    options = StorageOptions({"AWS_ENDPOINT_URL": store.url("")})
    fetch("s3://models/m.onnx", "", tmp_path / "cache", LOOPBACK, options=options)
    assert store.asked == ["/models/m.onnx"]


def test_a_key_of_the_secret_is_not_mixed_with_a_token_of_the_environment(store: Store, tmp_path: Path) -> None:
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("of-the-secret\n")
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("secret")
    store.file("/models/m.onnx", b"a model")
    get("s3://models/m.onnx", store.url(""), tmp_path, KNODEL_CREDENTIALS=str(tmp_path), AWS_SESSION_TOKEN="other")
    assert "X-Amz-Credential=of-the-secret%2F" in store.asked[0] and "Security-Token" not in store.asked[0]


@pytest.mark.parametrize("signed", [False, True])
def test_the_role_of_the_machine_is_not_asked_for(
    store: Store, tmp_path: Path, signed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", store.url(""))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "without-keys"))
    chain = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "without-keys")} if signed else {}
    store.file("/models/m.onnx", b"a model")
    options = StorageOptions({"AWS_ENDPOINT_URL": store.url(""), **chain}, limits=ONCE)
    with pytest.raises(StorageError, match="Credentials") if signed else nullcontext():
        fetch("s3://models/m.onnx", "", tmp_path / "cache", LOOPBACK, options=options)
    assert store.asked == ([] if signed else ["/models/m.onnx"])


def test_a_list_without_end_is_left(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "MOST_PAGES", 5)

    def page(handler: Any) -> None:
        token = f"<NextContinuationToken>{len(store.asked)}</NextContinuationToken>".encode()
        store.file("/models", b"<ListBucketResult>" + token + b"</ListBucketResult>")
        answer, store.answers["/models"] = store.answers["/models"], page
        answer(handler)

    store.answers["/models"] = page
    bucket = S3Bucket("models", "uri", Credentials({"AWS_ENDPOINT_URL": store.url("")}))
    with pytest.raises(StorageError, match="has too many pages"):
        list(ObjectStoreSource("s3://models/x", "x", bucket, downloader()).keys("x/"))
    assert len(store.asked) == 5


def test_a_busy_store_is_asked_for_its_list_again(store: Store) -> None:
    store.file("/models", b"<ListBucketResult><Contents><Key>x/a</Key><Size>1</Size></Contents></ListBucketResult>")
    store.busy("/models", 2)
    bucket = S3Bucket("models", "uri", Credentials({"AWS_ENDPOINT_URL": store.url("")}))
    asking = downloader(TransferLimits(pause=0))
    assert list(ObjectStoreSource("s3://models/x", "x", bucket, asking).keys("x/")) == [("x/a", 1)]


def test_files_that_are_larger_than_listed_are_left_at_the_limit(store: Store, tmp_path: Path) -> None:
    files = [
        RemoteFile(name, partial(StoreRequest, store.file(f"/{name}", b"x" * 600), "uri"), size=1) for name in "ab"
    ]
    with pytest.raises(StorageError, match="limit"):
        download_files(files, tmp_path, downloader(), "uri", ignore_progress, FolderLimits(size=1000))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 1000


def test_a_bucket_in_another_region_is_named(store: Store, tmp_path: Path) -> None:
    def answer(handler: Any) -> None:
        handler.send_response(301)
        handler.send_header("x-amz-bucket-region", "eu-central-1")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    store.answers["/models/m.onnx"] = store.answers["/models"] = answer
    with pytest.raises(StorageError, match="eu-central-1"):
        get("s3://models/m.onnx", store.url(""), tmp_path)


@pytest.mark.parametrize(
    "uri",
    ["s3://", "s3:///m", "s3://A/m", "s3://ab", "s3://a..b/m", "s3://host:80/m", "s3://u@host/m", "s3://bucket/m?x",
     "s3://bucket/m#x", "s3://bucket/a\nb", "s3://bucket/" + "x" * 1025],
)  # fmt: skip
def test_what_names_no_object_is_refused(uri: str) -> None:
    with pytest.raises(StorageError):
        split_bucket_uri(uri)


@pytest.mark.parametrize(
    "body",
    [b"", b"<", b"<a/><b/>", b"<a><Contents><Key>p/x</Key><Size>x</Size></Contents></a>", b"\xff",
     b"<a><Contents><Key>other</Key></Contents></a>", b"<a><Contents><Key>p/x</Key><Size>-1</Size></Contents></a>",
     "<?xml version='1.0' encoding='utf-16'?><a><Contents><Key>p/x</Key></Contents></a>".encode("utf-16"),
     b'<!DOCTYPE a [<!ENTITY b "c">]><a><Contents><Key>p/&b;</Key></Contents></a>'],
)  # fmt: skip
def test_an_answer_that_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(StorageError):
        parse_page(body, "p/", "uri")
