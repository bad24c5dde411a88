"""Artifacts from a model store over HTTP."""

from __future__ import annotations

import hashlib
import io
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from serving.storage.artifact import Artifact
from serving.storage.errors import StorageError
from serving.storage.fetch import fetch
from serving.storage.http import Downloader, DownloadLimits
from tests.serving.storage.conftest import LOOPBACK, Store

CONTENT = b"a model" * 1000
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
WRONG = "sha256:" + "0" * 64


def get(uri: str, cache: Path, digest: str = "", allowed: frozenset[str] = LOOPBACK) -> Artifact:
    return fetch(uri, digest, cache / "cache", allowed)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_is_downloaded_and_read(store: Store, tmp_path: Path) -> None:
    artifact = get(store.file("/models/m.onnx?sig=secret", CONTENT), tmp_path)
    assert artifact.names() == ["m.onnx"] and artifact.read("m.onnx") == CONTENT


def test_with_a_digest_it_is_downloaded_once(store: Store, tmp_path: Path) -> None:
    uri = store.file("/m.onnx", CONTENT)
    for _ in range(3):
        assert get(uri, tmp_path, DIGEST).content == CONTENT
    assert store.asked == ["/m.onnx"]


def test_without_a_digest_it_is_downloaded_anew(store: Store, tmp_path: Path) -> None:
    assert get(store.file("/m.onnx", b"old"), tmp_path).content == b"old"
    assert get(store.file("/m.onnx", b"new"), tmp_path).content == b"new"
    assert files(tmp_path) == []


def test_a_cached_file_that_was_damaged_is_downloaded_anew(store: Store, tmp_path: Path) -> None:
    uri = store.file("/m.onnx", CONTENT)
    get(uri, tmp_path, DIGEST).path.write_bytes(b"damaged")
    assert get(uri, tmp_path, DIGEST).content == CONTENT


def test_another_digest_is_refused_with_both_and_nothing_is_kept(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StorageError) as error:
        get(store.file("/m.onnx", CONTENT), tmp_path, WRONG)
    assert WRONG in str(error.value) and DIGEST in str(error.value)
    assert files(tmp_path) == []


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_download_that_ends_early_is_refused_and_not_kept(store: Store, tmp_path: Path, share: float) -> None:
    uri = store.file("/m.onnx", CONTENT[: int(len(CONTENT) * share)], announced=len(CONTENT))
    with pytest.raises(StorageError, match="cannot be downloaded"):
        get(uri, tmp_path)
    assert files(tmp_path) == []


def test_what_the_store_says_instead_is_reported_without_the_query(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StorageError) as error:
        get(store.url("/nothing.onnx?token=secret"), tmp_path)
    assert "404" in str(error.value) and "secret" not in str(error.value)


def test_redirects_are_followed_but_not_for_ever(store: Store, tmp_path: Path) -> None:
    store.file("/end/m.onnx", CONTENT)
    store.redirect("/2", "/end/m.onnx", 307)
    assert get(store.redirect("/1", store.url("/2")), tmp_path).content == CONTENT
    with pytest.raises(StorageError, match="redirects"):
        get(store.redirect("/loop", "/loop"), tmp_path)
    assert store.asked.count("/loop") == 6


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://10.0.0.1/x", "//[::1]/x", ""])
def test_a_redirect_leads_nowhere_else(store: Store, tmp_path: Path, target: str) -> None:
    with pytest.raises(StorageError):
        get(store.redirect("/1", target), tmp_path)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "0"]
)
def test_private_addresses_are_refused_unless_allowed(store: Store, tmp_path: Path, host: str) -> None:
    store.file("/m.onnx", CONTENT)
    with pytest.raises(StorageError):
        get(f"http://{host}:{store.server.server_port}/m.onnx", tmp_path, allowed=frozenset())
    assert store.asked == []


def test_a_compressed_answer_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="compressed"):
        get(store.file("/m.onnx", CONTENT, Content_Encoding="gzip"), tmp_path)


def test_an_answer_that_is_no_http_is_refused(store: Store, tmp_path: Path) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"hello\r\n\r\n")

    store.answers["/m"] = answer
    with pytest.raises(StorageError, match="not HTTP"):
        get(store.url("/m"), tmp_path)


@pytest.mark.parametrize("announced", [None, 10])
def test_more_bytes_than_allowed_are_refused(store: Store, announced: int | None) -> None:
    downloader = Downloader(LOOPBACK, DownloadLimits(size=5))
    with pytest.raises(StorageError, match="limit"):
        downloader.download(store.file("/m", b"x" * 10), io.BytesIO())


def test_a_download_takes_no_longer_than_allowed(store: Store) -> None:
    times = iter(range(0, 1000, 100))
    downloader = Downloader(LOOPBACK, DownloadLimits(total=50), lambda: float(next(times)))
    with pytest.raises(StorageError, match="50 s"):
        downloader.download(store.file("/m", CONTENT), io.BytesIO())


def test_a_store_that_is_not_there_is_named(tmp_path: Path, store: Store) -> None:
    port = store.server.server_port
    store.server.shutdown()
    store.server.server_close()
    with pytest.raises(StorageError, match=f"127.0.0.1:{port}"):
        get(f"http://127.0.0.1:{port}/m.onnx", tmp_path)


def test_a_cache_that_others_may_write_is_not_used(store: Store, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(StorageError, match="other users"):
        get(store.file("/m.onnx", CONTENT), tmp_path)


@pytest.mark.parametrize("path", ["/", "/..", "/%2e%2e", "/a%2Fb", "/.download-x"])
def test_the_name_of_a_file_stays_inside_of_the_cache(store: Store, tmp_path: Path, path: str) -> None:
    artifact = get(store.file(path, CONTENT), tmp_path)
    assert artifact.path.resolve().is_relative_to((tmp_path / "cache").resolve())
    assert artifact.names() == [artifact.path.name] and "/" not in artifact.path.name
