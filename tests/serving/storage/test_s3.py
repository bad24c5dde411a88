"""S3, by moto's server: objects, archives, prefixes."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from serving.storage.artifact import Artifact
from serving.storage.credentials import Credentials
from serving.storage.digest import of_bytes, of_folder
from serving.storage.errors import StorageError
from serving.storage.fetch import StorageOptions, fetch
from serving.storage.http import Downloader
from serving.storage.objects import Objects, parse_page, split
from serving.storage.s3 import S3Bucket
from tests.serving.storage.archives import MODEL, tar
from tests.serving.storage.conftest import LOOPBACK, Store
from tests.support.ports import free_ports
from tests.testbed.waiting import becomes

pytest.importorskip("botocore")
pytest.importorskip("moto")

ODD: Mapping[str, bytes] = {"a b+c%20.txt": b"1", "ä&<>.bin": b"2", "sub/x": b"3"}
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
STARTED_WITHIN = 30.0  # s


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server of moto's with one bucket."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        becomes(lambda: server.poll() is not None or _listens(port), STARTED_WITHIN)
        assert server.poll() is None and _listens(port), "moto's server does not start"
        yield f"http://127.0.0.1:{port}"
        server.kill()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def bucket(endpoint: str) -> Any:
    """The bucket `models`, with all that the tests fetch; the client that made it."""
    import botocore.session

    client = botocore.session.Session().create_client(
        "s3", "us-east-1", endpoint_url=endpoint, aws_access_key_id="key", aws_secret_access_key="secret"
    )
    client.create_bucket(Bucket="models")
    files = {
        "m.onnx": b"a model",
        "m.tar.gz": tar(MODEL, "gz"),
        "folder/": b"",
        **{f"folder/{name}": content for name, content in MODEL.items()},
        **{f"odd/{name}": content for name, content in ODD.items()},
        "folderish/evil": b"x",
        "hostile/../evil": b"x",
    }
    for key, content in files.items():
        client.put_object(Bucket="models", Key=key, Body=content)
    return client


def get(uri: str, endpoint: str, tmp_path: Path, digest: str = "", **environ: str) -> Artifact:
    options = StorageOptions({"AWS_ENDPOINT_URL": endpoint, **KEYS, **environ})
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
    objects = Objects("s3://models/odd", "odd", pages, Downloader(LOOPBACK))
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


def test_a_private_endpoint_is_refused_unless_allowed(store: Store, tmp_path: Path) -> None:
    options = StorageOptions({"AWS_ENDPOINT_URL": store.url(""), **KEYS})
    with pytest.raises(StorageError, match="private"):
        fetch("s3://models/m.onnx", "", tmp_path / "cache", frozenset(), options=options)
    assert store.asked == []


def test_requests_are_signed_with_the_keys_of_the_secret(store: Store, tmp_path: Path) -> None:
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("of-the-secret\n")
    store.file("/models/m.onnx", b"a model")
    get("s3://models/m.onnx", store.url(""), tmp_path, KNODEL_CREDENTIALS=str(tmp_path))
    assert "X-Amz-Credential=of-the-secret%2F" in store.asked[0] and "X-Amz-Signature=" in store.asked[0]


def test_without_keys_nothing_is_signed(store: Store, tmp_path: Path) -> None:
    store.file("/models/m.onnx", b"a model")
    options = StorageOptions({"AWS_ENDPOINT_URL": store.url("")})
    fetch("s3://models/m.onnx", "", tmp_path / "cache", LOOPBACK, options=options)
    assert store.asked == ["/models/m.onnx"]


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
        split(uri)


@pytest.mark.parametrize(
    "body",
    [b"", b"<", b"<a/><b/>", b"<a><Contents><Key>p/x</Key><Size>x</Size></Contents></a>", b"\xff",
     b"<a><Contents><Key>other</Key></Contents></a>", b"<a><Contents><Key>p/x</Key><Size>-1</Size></Contents></a>",
     b'<!DOCTYPE a [<!ENTITY b "c">]><a><Contents><Key>p/&b;</Key></Contents></a>'],
)  # fmt: skip
def test_an_answer_that_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(StorageError):
        parse_page(body, "p/", "uri")
