"""Artifacts from a model store over HTTP."""

from __future__ import annotations

import contextlib
import hashlib
import select
import socket
from http.server import BaseHTTPRequestHandler
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from clusters.net import ssrf
from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import StorageError, TransferInterrupted
from serving.storage.fetch import StorageOptions, fetch
from serving.storage.transfer.client import StoreRequest
from serving.storage.transfer.downloader import Download, Downloader
from serving.storage.transfer.limits import TransferDeadline
from tests.serving.storage.conftest import LOOPBACK, ONCE, Answer, Store, downloader

CONTENT = b"a model" * 1000
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
WRONG = "sha256:" + "0" * 64


def get(uri: str, cache: Path, digest: str = "", allowed: frozenset[str] = LOOPBACK) -> Artifact:
    return fetch(uri, digest, cache / "cache", allowed, options=StorageOptions({}, limits=ONCE))


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


def test_what_was_downloaded_without_a_digest_is_found_by_the_one_that_it_had(store: Store, tmp_path: Path) -> None:
    uri = store.file("/m.onnx", CONTENT)
    assert get(uri, tmp_path).digest == DIGEST
    assert get(uri, tmp_path, DIGEST).content == CONTENT
    assert store.asked == ["/m.onnx"]


@pytest.mark.fault("M1")
def test_a_cached_file_that_was_damaged_is_downloaded_anew(store: Store, tmp_path: Path) -> None:
    uri = store.file("/m.onnx", CONTENT)
    get(uri, tmp_path, DIGEST)
    (kept,) = (path for path in tmp_path.rglob("*") if path.is_file())
    kept.write_bytes(b"damaged")
    assert get(uri, tmp_path, DIGEST).content == CONTENT


@pytest.mark.fault("M1")
def test_another_digest_is_refused_with_both_and_nothing_is_kept(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StorageError) as error:
        get(store.file("/m.onnx", CONTENT), tmp_path, WRONG)
    assert WRONG in str(error.value) and DIGEST in str(error.value)
    assert files(tmp_path) == []


@pytest.mark.bad_input("artifact-changed")
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
@pytest.mark.fault("M1")
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


@pytest.mark.bad_input("artifact-addresses")
@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://10.0.0.1/x", "//[::1]/x", "http://[", ""]
)
def test_a_redirect_leads_nowhere_else(store: Store, tmp_path: Path, target: str) -> None:
    with pytest.raises(StorageError):
        get(store.redirect("/1", target), tmp_path)


@pytest.mark.bad_input("artifact-addresses")
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


@pytest.mark.bad_input("artifact-addresses")
@pytest.mark.parametrize("announced", [None, 10])
def test_more_bytes_than_allowed_are_refused(store: Store, tmp_path: Path, announced: int | None) -> None:
    uri = store.file("/m", b"x" * 10)
    with pytest.raises(StorageError, match="limit"):
        downloader().save(Download(uri, lambda: StoreRequest(uri, uri), tmp_path / "part", most=5))
    assert (tmp_path / "part").stat().st_size <= 5


def drips_head(handler: BaseHTTPRequestHandler) -> None:
    """Send an endless header."""
    handler.send_response(200)
    handler.flush_headers()
    drip(handler, b"x")


def drips_body(handler: BaseHTTPRequestHandler) -> None:
    """Send an endless body."""
    handler.send_response(200)
    handler.end_headers()
    drip(handler, b"x")


def never_answers(handler: BaseHTTPRequestHandler) -> None:
    """Send endless interim responses."""
    drip(handler, b"HTTP/1.1 100 Continue\r\n\r\n", pause=0)


def drip(handler: BaseHTTPRequestHandler, piece: bytes, pause: float = 0.01) -> None:
    """Send a piece at intervals until the client disconnects."""
    handler.close_connection = True
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(piece)
            select.select([handler.connection], [], [], pause)


@pytest.mark.parametrize("answer", [drips_head, drips_body, never_answers])
def test_a_download_takes_no_longer_than_allowed(store: Store, tmp_path: Path, answer: Answer) -> None:
    store.answers["/m"] = answer
    deadline = TransferDeadline("uri", 0.15)
    uri = store.url("/m")
    with pytest.raises(TransferInterrupted, match=r"0\.15 s|in time"):
        Downloader(LOOPBACK, deadline).save(Download(uri, lambda: StoreRequest(uri, uri), tmp_path / "part"))
    assert -1 < deadline.left <= 0.01


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
def test_a_file_is_called_by_the_last_part_of_its_path(store: Store, tmp_path: Path, path: str) -> None:
    artifact = get(store.file(path, CONTENT), tmp_path, DIGEST)
    (name,) = artifact.names()
    assert name not in ("", ".", "..") and "/" not in name and artifact.read(name) == CONTENT
    assert files(tmp_path) == ["file"]


def test_a_host_that_redirects_to_itself_and_is_then_resolved_to_another_address_is_judged_anew(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssrf, "REFUSED_V4", (IPv4Network("127.0.0.2/32"),))  # 127.0.0.1 counts as public here
    real, answers = socket.getaddrinfo, ["127.0.0.1"]

    def rebinds(host: str, port: int, *given: Any, **options: Any) -> Any:
        return real(answers.pop() if answers else "127.0.0.2", port, *given, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebinds)
    store.file("/b.onnx", CONTENT)
    uri = store.redirect("/a.onnx", "/b.onnx").replace("127.0.0.1", "models.example")
    with pytest.raises(StorageError, match=r"127\.0\.0\.2, which is private"):
        get(uri, tmp_path, allowed=frozenset({"127.0.0.2"}))
    assert store.asked == ["/a.onnx"]


def test_the_same_bytes_by_two_names_are_downloaded_once(store: Store, tmp_path: Path) -> None:
    uris = store.file("/a.onnx", CONTENT), store.file("/b.onnx", CONTENT), store.url("/a.onnx")
    names = [get(uri, tmp_path, DIGEST).names() for uri in uris]
    assert names == [["a.onnx"], ["b.onnx"], ["a.onnx"]]
    assert store.asked == ["/a.onnx"]


def test_a_host_that_is_resolved_to_another_address_the_second_time_is_connected_to_where_it_was_judged(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssrf, "REFUSED_V4", (IPv4Network("127.0.0.2/32"),))  # 127.0.0.1 counts as public here
    real, answers = socket.getaddrinfo, ["127.0.0.1"]

    def rebinds(host: str, port: int, *given: Any, **options: Any) -> Any:
        assert host == "models.example"
        return real(answers.pop() if answers else "127.0.0.2", port, *given, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebinds)
    uri = store.file("/m.onnx", CONTENT).replace("127.0.0.1", "models.example")
    assert get(uri, tmp_path / "first", allowed=frozenset()).read("m.onnx") == CONTENT
    with pytest.raises(StorageError, match=r"127\.0\.0\.2, which is private"):  # another connection is judged anew
        get(uri, tmp_path / "second", allowed=frozenset({"127.0.0.1", "127.0.0.2"}))
