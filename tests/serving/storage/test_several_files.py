"""Downloads of several files at once, over pooled connections."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from clusters.net import ssrf
from serving.control_api.tls import ensure_certificate
from serving.storage.archives.folder_writer import FolderLimits
from serving.storage.base.digest import of_bytes, of_folder
from serving.storage.base.errors import HttpStatusError, StorageError, TransferInterrupted
from serving.storage.sources.folder_download import RemoteFile, download_files
from serving.storage.transfer.client import StoreRequest
from serving.storage.transfer.downloader import Download, Downloader
from serving.storage.transfer.limits import TransferDeadline, TransferLimits
from serving.storage.transfer.progress import FolderProgress, Progress, ignore_progress
from serving.storage.transfer.retry import Slots
from serving.storage.transfer.urls import parse_url
from tests.serving.storage.conftest import LOOPBACK, Answer, Store, running

FILES = {f"folder/{number}": b"%d" % number * 1000 for number in range(20)}
ONE_AT_ONCE = TransferLimits(retries=0, files_at_once=1)
AT_ONCE = TransferLimits(retries=0, files_at_once=4)
WITHIN = 20.0  # s that a thread of a test waits for another


@pytest.fixture
def keeping() -> Iterator[Store]:
    """A store with HTTP/1.1 keep-alive."""
    yield from running(keeps_connections=True)


@contextlib.contextmanager
def downloading(
    limits: TransferLimits = AT_ONCE,
    allow_hosts: frozenset[str] = LOOPBACK,
    deadline: TransferDeadline | None = None,
    sleep: Callable[[float], None] | None = None,
) -> Iterator[Downloader]:
    made = Downloader(allow_hosts, deadline or TransferDeadline("uri", 60), limits, sleep)
    with contextlib.closing(made):
        yield made


def remote(url: str, name: str, size: int | None = None, digest: str = "") -> RemoteFile:
    return RemoteFile(name, partial(StoreRequest, url, "uri"), size, digest)


def publish(store: Store, files: dict[str, bytes] | None = None) -> list[RemoteFile]:
    return [
        remote(store.file(f"/{name}", content), name, len(content))
        for name, content in (FILES if files is None else files).items()
    ]


def bring(
    files: Sequence[RemoteFile], work: Path, downloader: Downloader, progress: Progress = ignore_progress
) -> dict[str, bytes]:
    """Download the files, check the returned digests, and return the contents."""
    digests = download_files(files, work, downloader, "uri", progress)
    found = {name: (work / "folder" / name).read_bytes() for name in digests}
    assert digests == {name: of_bytes(content) for name, content in found.items()}
    return found


@pytest.mark.parametrize("at_once", [1, 4])
def test_connections_are_used_again(keeping: Store, tmp_path: Path, at_once: int) -> None:
    with downloading(TransferLimits(files_at_once=at_once)) as downloader:
        assert bring(publish(keeping), tmp_path, downloader) == FILES
    assert keeping.connections <= at_once


def test_a_redirect_to_another_server_keeps_the_connections_to_both(keeping: Store, tmp_path: Path) -> None:
    with contextlib.contextmanager(running)(keeps_connections=True) as second, downloading(ONE_AT_ONCE) as downloader:
        files = [
            remote(keeping.redirect(f"/{name}", second.file(f"/{name}", content)), name)
            for name, content in FILES.items()
        ]
        assert bring(files, tmp_path, downloader) == FILES
        assert (keeping.connections, second.connections) == (1, 1)


def test_connections_with_tls_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, certificate, key = ensure_certificate(tmp_path / "tls", datetime.now(UTC))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with contextlib.contextmanager(running)(keeps_connections=True, tls=context) as store:
        with downloading() as downloader:
            assert bring(publish(store), tmp_path / "work", downloader) == FILES
        assert store.connections <= 4


def closes_without_notice(answer: Answer) -> Answer:
    def closing(handler: BaseHTTPRequestHandler) -> None:
        answer(handler)
        handler.close_connection = True

    return closing


@pytest.mark.parametrize("at_once", [1, 4])
def test_a_server_that_closes_each_connection_without_notice_works(
    keeping: Store, tmp_path: Path, at_once: int
) -> None:
    files = publish(keeping)
    keeping.answers = {path: closes_without_notice(answer) for path, answer in keeping.answers.items()}
    with downloading(TransferLimits(retries=0, files_at_once=at_once)) as downloader:
        assert bring(files, tmp_path, downloader) == FILES
    assert keeping.connections == len(FILES)


def test_a_kept_connection_that_was_reset_is_replaced(keeping: Store, tmp_path: Path) -> None:
    with downloading() as downloader:
        (first, second) = publish(keeping, {"a": b"1", "b": b"2"})
        assert bring([first], tmp_path / "1", downloader) == {"a": b"1"}
        (connection,) = downloader.client.pool._idle
        assert connection.is_usable(LOOPBACK)
        connection._timed.sendall = reset  # type: ignore[method-assign]  # it breaks after it was taken
        assert bring([second], tmp_path / "2", downloader) == {"b": b"2"}
    assert keeping.asked == ["/a", "/b"] and keeping.connections == 2


def reset(data: bytes) -> None:
    raise ConnectionResetError


@pytest.mark.bad_input("artifact-addresses")
@pytest.mark.parametrize("at_once", [True, False])
def test_bytes_after_a_response_are_not_the_next_response(keeping: Store, tmp_path: Path, at_once: bool) -> None:
    evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"

    def answer(handler: BaseHTTPRequestHandler) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
        for piece in [head + b"hello" + evil] if at_once else [head, b"hello", evil]:
            handler.wfile.write(piece)

    keeping.answers["/a"] = answer
    files = [remote(keeping.url("/a"), "a"), remote(keeping.file("/b", b"good"), "b")]
    with downloading(ONE_AT_ONCE) as downloader:
        assert bring(files, tmp_path, downloader) == {"a": b"hello", "b": b"good"}
    assert keeping.connections == 2


@pytest.mark.bad_input("artifact-addresses")
def test_a_kept_connection_to_an_allowed_host_is_not_used_for_a_redirect_from_a_public_one(
    keeping: Store, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssrf, "REFUSED_V4", (IPv4Network("127.0.0.2/32"),))  # 127.0.0.1 counts as public here
    real = socket.getaddrinfo
    hosts = {"inside.example": "127.0.0.2", "public.example": "127.0.0.1"}
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: real(hosts[host], *rest, **more))
    keeping.server.socket.close()
    keeping.server.socket = socket.create_server(("127.0.0.2", keeping.server.server_port))
    inside = keeping.file("/secret", b"secret").replace("127.0.0.1", "inside.example")
    public = store.redirect("/m", inside).replace("127.0.0.1", "public.example")
    with downloading(allow_hosts=frozenset({"inside.example"})) as downloader:
        assert bring([remote(inside, "a")], tmp_path / "1", downloader) == {"a": b"secret"}
        assert downloader.client.pool.take(parse_url(inside), frozenset()) is None
        assert bring([remote(inside, "a")], tmp_path / "2", downloader) == {"a": b"secret"}
        with pytest.raises(StorageError, match=r"127\.0\.0\.2, which is private"):
            bring([remote(public, "a")], tmp_path / "3", downloader)
    assert keeping.asked == ["/secret", "/secret"]


def test_a_kept_connection_stays_with_the_address_that_was_checked(
    keeping: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, resolved = socket.getaddrinfo, []

    def resolve(host: str, *rest: Any, **more: Any) -> Any:
        resolved.append(host)
        return real("127.0.0.1" if len(resolved) == 1 else "192.0.2.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    files = [remote(keeping.file(f"/{name}", b"x").replace("127.0.0.1", "models.example"), name) for name in "abc"]
    with downloading(ONE_AT_ONCE, allow_hosts=frozenset({"models.example"})) as downloader:
        assert bring(files, tmp_path, downloader) == {"a": b"x", "b": b"x", "c": b"x"}
    assert resolved == ["models.example"]


def test_no_more_files_are_downloaded_at_once_than_allowed_and_all_that_are(keeping: Store, tmp_path: Path) -> None:
    files = publish(keeping)
    together = threading.Barrier(AT_ONCE.files_at_once)  # 20 files in 5 rounds: fewer at once would never pass it
    keeping.answers = {path: after(answer, lambda: together.wait(WITHIN)) for path, answer in keeping.answers.items()}
    with downloading() as downloader:
        assert bring(files, tmp_path, downloader) == FILES
        assert len(downloader.client.pool._idle) <= AT_ONCE.files_at_once
    assert keeping.connections == AT_ONCE.files_at_once


def after(answer: Answer, wait: Callable[[], object]) -> Answer:
    """Delay a response."""

    def waiting(handler: BaseHTTPRequestHandler) -> None:
        wait()
        answer(handler)

    return waiting


def test_the_digest_does_not_depend_on_the_order_in_which_files_arrive(keeping: Store, tmp_path: Path) -> None:
    files = publish(keeping, {"a": b"first", "b": b"second"})
    arrived = threading.Event()
    keeping.answers["/a"] = after(keeping.answers["/a"], lambda: arrived.wait(WITHIN))

    def progress(received: int, total: int | None) -> None:
        if received == len(b"second"):
            arrived.set()

    with downloading() as downloader:
        bring(files, tmp_path / "late", downloader, progress)
        assert arrived.is_set()
        late = download_files(files, tmp_path / "1", downloader, "uri", ignore_progress)
        early = download_files(files[::-1], tmp_path / "2", downloader, "uri", ignore_progress)
    assert of_folder(late) == of_folder(early) == of_folder({"a": of_bytes(b"first"), "b": of_bytes(b"second")})


def test_the_first_error_ends_the_other_downloads_and_names_its_file(keeping: Store, tmp_path: Path) -> None:
    released, begun = threading.Event(), threading.Barrier(3)
    ended = []

    def hang(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "10")
        handler.end_headers()
        handler.wfile.write(b"x")
        begun.wait(WITHIN)
        released.wait(WITHIN)
        ended.append(handler.path)
        handler.close_connection = True

    def refuse(handler: BaseHTTPRequestHandler) -> None:
        begun.wait(WITHIN)
        handler.send_error(404)

    keeping.answers = {"/a": hang, "/b": refuse, "/c": hang, "/d": hang}
    try:
        with downloading(TransferLimits(files_at_once=3)) as downloader:
            with pytest.raises(HttpStatusError, match=r"'b'.*404"):
                bring([remote(keeping.url(f"/{name}"), name) for name in "abcd"], tmp_path, downloader)
            assert not ended and not any(thread.name == "transfer" for thread in threading.enumerate())
    finally:
        released.set()
    assert "/d" not in keeping.asked


def test_a_wait_for_a_slot_ends_with_the_first_error() -> None:
    deadline = TransferDeadline("uri", 600)
    slots = Slots(1, deadline)
    errors: list[TransferInterrupted] = []

    def take() -> None:
        try:
            with slots.acquire():
                pass
        except TransferInterrupted as error:
            errors.append(error)

    waiting = threading.Thread(target=take)
    with slots.acquire():
        waiting.start()
        deadline.cancel()
        slots.notify_all()
        waiting.join(WITHIN)
    assert len(errors) == 1 and not waiting.is_alive()


def test_a_wait_before_a_retry_ends_with_the_first_error(keeping: Store, tmp_path: Path) -> None:
    asked_again = threading.Event()

    def refuse(handler: BaseHTTPRequestHandler) -> None:
        asked_again.wait(WITHIN)
        handler.send_error(404)

    class Notices(TransferDeadline):
        def sleep(self, seconds: float) -> None:
            asked_again.set()
            super().sleep(seconds)

    files = publish(keeping, {"a": b"x", "b": b"x"})
    keeping.busy("/a", 1, Retry_After="50")
    keeping.answers["/b"] = refuse
    deadline = Notices("uri", 600)
    with downloading(TransferLimits(), deadline=deadline) as downloader, pytest.raises(HttpStatusError, match="'b'"):
        bring(files, tmp_path, downloader)
    assert keeping.asked.count("/a") == 1 and deadline._end - time.monotonic() > 560


def test_a_file_that_cannot_be_written_ends_the_other_downloads(keeping: Store, tmp_path: Path) -> None:
    files = publish(keeping)
    (tmp_path / "parts" / hashlib.sha256(b"folder/7").hexdigest()).mkdir(parents=True)
    with downloading() as downloader, pytest.raises(StorageError, match=r"'folder/7'.*cannot be written"):
        bring(files, tmp_path, downloader)


def test_a_digest_that_is_not_the_promised_one_names_its_file(keeping: Store, tmp_path: Path) -> None:
    files = [remote(keeping.file(f"/{name}", b"x"), name, 1, of_bytes(content)) for name, content in
             {"a": b"x", "b": b"y"}.items()]  # fmt: skip
    with downloading() as downloader, pytest.raises(StorageError, match="'b': digest is"):
        bring(files, tmp_path, downloader)


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_serves_one_request_at_once_gets_one_at_once(keeping: Store, tmp_path: Path, status: int) -> None:
    files = publish(keeping)
    busy, first = threading.Lock(), threading.Event()

    def only_one(answer: Answer) -> Answer:
        def guarded(handler: BaseHTTPRequestHandler) -> None:
            if not busy.acquire(blocking=False):
                handler.send_response(status)
                handler.send_header("Retry-After", "1")
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                first.set()
                return
            try:
                first.wait(WITHIN)  # until another request was refused
                answer(handler)
            finally:
                busy.release()

        return guarded

    keeping.answers = {path: only_one(answer) for path, answer in keeping.answers.items()}
    with downloading(TransferLimits(retries=1), sleep=lambda seconds: None) as downloader:
        assert bring(files, tmp_path, downloader) == FILES


def test_what_came_before_an_interruption_is_continued_in_a_folder_too(keeping: Store, tmp_path: Path) -> None:
    def broken(path: str, content: bytes) -> str:
        url = keeping.versioned(path, content, '"1"', breaks=[500])
        keeping.answers[path] = closes_without_notice(keeping.answers[path])
        return url

    files = [remote(broken(f"/{name}", content), name, len(content)) for name, content in FILES.items()]
    with downloading(TransferLimits(pause=0)) as downloader:
        assert bring(files, tmp_path, downloader) == FILES
    assert sorted(headers.get("Range", "") for headers in keeping.headers) == [""] * 20 + ["bytes=500-"] * 20


def test_the_next_start_asks_only_for_what_is_missing(keeping: Store, tmp_path: Path) -> None:
    contents = {"a": b"1" * 100, "b": b"2" * 100}
    files = [remote(keeping.versioned(f"/{name}", content, '"1"'), name, 100) for name, content in contents.items()]
    whole = keeping.answers["/b"]
    keeping.busy("/b", 1)
    with downloading(ONE_AT_ONCE) as downloader, pytest.raises(HttpStatusError, match="503"):
        bring(files, tmp_path, downloader)
    keeping.asked.clear()
    keeping.answers["/b"] = whole
    with downloading() as downloader:
        assert bring(files, tmp_path, downloader) == contents
    assert keeping.asked == ["/b"]


def test_progress_counts_the_bytes_of_all_files(keeping: Store, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    with downloading() as downloader:
        bring(publish(keeping), tmp_path, downloader, lambda received, total: seen.append((received, total)))
    total = sum(map(len, FILES.values()))
    assert [received for received, _ in seen] == sorted(received for received, _ in seen)
    assert seen[-1] == (total, total) and {expected for _, expected in seen} == {total}


def test_progress_of_a_file_that_begins_anew_is_not_counted_twice() -> None:
    seen: list[int] = []
    folder = FolderProgress(lambda received, total: seen.append(received), 300, 300, "uri")
    first, second = folder.of_file(0), folder.of_file(1)
    for record, received in ((first, 100), (second, 150), (first, 20), (first, 150)):
        record(received, 150)
    assert seen == [100, 250, 170, 300]


def test_files_have_the_bytes_of_the_limit_together(keeping: Store, tmp_path: Path) -> None:
    files = [remote(keeping.file(f"/{name}", b"x" * 400), name) for name in "abc"]
    with downloading() as downloader, pytest.raises(StorageError, match="limit"):
        download_files(files, tmp_path, downloader, "uri", ignore_progress, FolderLimits(size=1000))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 1000


def test_a_file_that_is_listed_twice_is_refused_before_it_is_requested(keeping: Store, tmp_path: Path) -> None:
    files = [remote(keeping.file("/a", b"x"), "a"), remote(keeping.file("/a", b"x"), "./a")]
    with downloading() as downloader, pytest.raises(StorageError, match="'a' twice"):
        bring(files, tmp_path, downloader)
    assert keeping.asked == []


def test_without_further_threads_the_caller_downloads_all_files(
    keeping: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "transfer":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with downloading() as downloader:
        assert bring(publish(keeping), tmp_path, downloader) == FILES
    assert keeping.connections == 1


def test_the_deadline_of_the_artifact_ends_all_downloads(keeping: Store, tmp_path: Path) -> None:
    released = threading.Event()

    def hang(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"x")
        handler.wfile.flush()
        released.wait(WITHIN)
        handler.close_connection = True

    keeping.answers = {f"/{name}": hang for name in "abc"}
    deadline = TransferDeadline("uri", 0.15)
    try:
        with downloading(deadline=deadline) as downloader, pytest.raises(TransferInterrupted, match=r"0\.15 s|in time"):
            bring([remote(keeping.url(f"/{name}"), name) for name in "abc"], tmp_path, downloader)
    finally:
        released.set()


def test_a_download_of_one_file_starts_no_thread(store: Store, tmp_path: Path) -> None:
    uri = store.file("/m", b"x")
    names: list[str] = []

    def record(received: int, total: int | None) -> None:
        names.extend(thread.name for thread in threading.enumerate())

    with downloading() as downloader:
        wanted = Download("uri", lambda: StoreRequest(uri, "uri"), tmp_path / "part")
        assert downloader.save_all([wanted], FolderProgress(record, 1, 10, "uri")) == [of_bytes(b"x")]
    assert names and "transfer" not in names
