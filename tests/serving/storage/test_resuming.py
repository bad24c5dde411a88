"""Interrupted downloads are resumed, and never mix two versions of a file."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import HttpStatusError, StorageError, TransferInterrupted
from serving.storage.remote import ArtifactRequest, fetch_remote
from serving.storage.sources.single_file import HttpFileSource
from serving.storage.sources.source import SourceContext
from serving.storage.transfer.credentials import Credentials
from serving.storage.transfer.limits import TransferDeadline, TransferLimits
from serving.storage.transfer.progress import Progress, ignore_progress
from serving.storage.transfer.retry import Retry
from tests.serving.storage.conftest import Store, downloader
from tests.support.wait import eventually

CONTENT = bytes(range(256)) * 4000
OTHER = CONTENT[::-1]
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class Pauses:
    """Record pauses instead of sleeping."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


def get(
    uri: str, cache: Path, digest: str = DIGEST, progress: Progress = ignore_progress, pauses: Pauses | None = None
) -> Artifact:
    asking = downloader(TransferLimits(retries=2), pauses or Pauses())
    source = HttpFileSource(uri, SourceContext(asking, Credentials({})))
    return fetch_remote(
        ArtifactRequest(source, uri, uri, digest, TransferDeadline(uri, 60)), cache / "cache", 1 << 30, progress
    )


def ranges(store: Store) -> list[str]:
    return [headers.get("Range", "") for headers in store.headers]


def test_a_download_that_breaks_goes_on_from_where_it_was(store: Store, tmp_path: Path) -> None:
    uri = store.versioned("/m.onnx", CONTENT, '"1"', breaks=[100_000, 200_000])
    assert get(uri, tmp_path, digest="").content == CONTENT
    assert ranges(store) == ["", "bytes=100000-", "bytes=300000-"]
    assert [headers.get("If-Range") for headers in store.headers] == [None, '"1"', '"1"']


def test_a_file_that_changes_meanwhile_is_taken_anew(store: Store, tmp_path: Path) -> None:
    class Changes(Pauses):
        def __call__(self, seconds: float) -> None:
            store.versioned("/m.onnx", OTHER, '"2"')

    uri = store.versioned("/m.onnx", CONTENT, '"1"', breaks=[100_000])
    assert get(uri, tmp_path, digest="", pauses=Changes()).content == OTHER


@pytest.mark.parametrize("etag", ['W/"1"', ""])
def test_what_no_strong_tag_names_is_begun_anew(store: Store, tmp_path: Path, etag: str) -> None:
    uri = store.versioned("/m.onnx", CONTENT, etag, breaks=[100_000])
    assert get(uri, tmp_path).content == CONTENT
    assert ranges(store) == ["", ""]


def test_a_store_that_brings_nothing_more_is_left_after_some_tries(store: Store, tmp_path: Path) -> None:
    pauses = Pauses()
    uri = store.versioned("/m.onnx", CONTENT, '"1"', breaks=[100_000, 0, 0])
    with pytest.raises(TransferInterrupted, match="ended after 100000 of"):
        get(uri, tmp_path, pauses=pauses)
    assert pauses.slept == [1, 2] and len(store.asked) == 3


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_store_that_is_busy_is_asked_again(store: Store, tmp_path: Path, status: int) -> None:
    pauses = Pauses()
    uri = store.file("/m.onnx", CONTENT)
    store.busy("/m.onnx", 2, status)
    assert get(uri, tmp_path, pauses=pauses).content == CONTENT
    assert pauses.slept == [1, 2]


@pytest.mark.parametrize(
    ("header", "pause"),
    [
        ("7", 7),
        ("100000", 60),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 1),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 60),
        ("-1", 1),
        ("soon", 1),
    ],
)
def test_the_next_attempt_waits_as_long_as_retry_after(store: Store, tmp_path: Path, header: str, pause: float) -> None:
    pauses = Pauses()
    uri = store.file("/m.onnx", CONTENT)
    store.busy("/m.onnx", 1, Retry_After=header)
    get(uri, tmp_path, pauses=pauses)
    assert pauses.slept == [pause]


def test_nothing_is_tried_again_that_the_deadline_does_not_spare() -> None:
    pauses = Pauses()

    def attempt() -> None:
        raise TransferInterrupted("broken")

    with pytest.raises(TransferInterrupted):
        Retry(TransferLimits(), TransferDeadline("uri", 2.5, lambda: 0.0), pauses).run(attempt)
    assert pauses.slept == [1, 2]


def test_a_store_that_is_not_reached_is_tried_again(store: Store, tmp_path: Path) -> None:
    pauses = Pauses()
    port = store.server.server_port
    store.server.shutdown()
    store.server.server_close()
    with pytest.raises(TransferInterrupted, match="reached"):
        get(f"http://127.0.0.1:{port}/m.onnx", tmp_path, pauses=pauses)
    assert pauses.slept == [1, 2]


def test_with_a_digest_the_next_start_goes_on(store: Store, tmp_path: Path) -> None:
    uri = store.versioned("/m.onnx", CONTENT, '"1"', breaks=[100_000, 0, 0])
    with pytest.raises(TransferInterrupted):
        get(uri, tmp_path)
    asked = len(store.asked)
    assert get(uri, tmp_path).content == CONTENT
    assert ranges(store)[asked:] == ["bytes=100000-"]


def test_without_a_digest_the_next_start_begins_anew(store: Store, tmp_path: Path) -> None:
    uri = store.versioned("/m.onnx", CONTENT, '"1"', breaks=[100_000, 0, 0])
    with pytest.raises(TransferInterrupted):
        get(uri, tmp_path, digest="")
    asked = len(store.asked)
    assert get(uri, tmp_path, digest="").content == CONTENT
    assert ranges(store)[asked:] == [""]


def test_what_was_left_damaged_is_found_by_the_digest_and_not_kept(store: Store, tmp_path: Path) -> None:
    uri = store.versioned("/m.onnx", CONTENT, '"1"', breaks=[100_000, 0, 0])
    with pytest.raises(TransferInterrupted):
        get(uri, tmp_path)
    (part,) = (path for path in tmp_path.rglob("parts/*") if path.suffix != ".etag")
    part.write_bytes(b"x" * part.stat().st_size)
    with pytest.raises(StorageError, match="digest"):
        get(uri, tmp_path)
    assert get(uri, tmp_path).content == CONTENT


def test_a_part_that_is_longer_than_the_file_is_forgotten(store: Store, tmp_path: Path) -> None:
    uri = store.versioned("/m.onnx", CONTENT, '"1"', breaks=[100_000, 0, 0])
    with pytest.raises(TransferInterrupted):
        get(uri, tmp_path)

    whole = store.answers["/m.onnx"]

    def refuse_ranges(handler: BaseHTTPRequestHandler) -> None:
        if "Range" in store.headers[-1]:
            handler.send_error(416)
        else:
            whole(handler)

    store.answers["/m.onnx"] = refuse_ranges
    assert get(uri, tmp_path).content == CONTENT


def test_a_store_that_answers_with_another_part_is_not_believed(store: Store, tmp_path: Path) -> None:
    uri = store.versioned("/m.onnx", CONTENT, '"1"', breaks=[100_000])
    right = store.answers["/m.onnx"]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if "Range" not in store.headers[-1]:
            right(handler)
            return
        store.versioned("/m.onnx", CONTENT, '"1"')
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}")
        handler.end_headers()

    store.answers["/m.onnx"] = answer
    assert get(uri, tmp_path).content == CONTENT


def answer_part(store: Store, content_range: str, body: bytes, etag: str = '"1"', encoding: str = "") -> str:
    """Answer the first request with the first half of the file, and ranges with `body`; return the address."""
    uri = store.versioned("/m.onnx", CONTENT, '"1"', breaks=[len(CONTENT) // 2])
    whole = store.answers["/m.onnx"]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if "Range" not in store.headers[-1]:
            whole(handler)
            return
        handler.send_response(206)
        handler.send_header("Content-Range", content_range)
        handler.send_header("ETag", etag)
        handler.send_header("Content-Encoding", encoding)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    store.answers["/m.onnx"] = answer
    return uri


HALF = len(CONTENT) // 2


@pytest.mark.parametrize(
    ("content_range", "etag"),
    [
        (f"bytes {HALF}-{len(CONTENT) - 1}/{len(CONTENT)}", '"2"'),  # of another version
        (f"bytes {HALF}-{len(CONTENT) - 1}/{len(CONTENT)}", ""),
        (f"bytes {HALF}-{len(CONTENT) - 1}/{len(CONTENT)}", 'W/"1"'),
        (f"bytes {HALF}-{len(CONTENT) - 1}/*", '"1"'),  # nobody knows where it ends
        (f"bytes {HALF}-{len(CONTENT)}/{len(CONTENT)}", '"1"'),
        (f"bytes {HALF}-{HALF - 1}/{len(CONTENT)}", '"1"'),
        (f"bytes {HALF + 1}-{len(CONTENT) - 1}/{len(CONTENT)}", '"1"'),
        (f"bytes {HALF}-{'9' * 5000}/{'9' * 5001}", '"1"'),
        (f"items {HALF}-{len(CONTENT) - 1}/{len(CONTENT)}", '"1"'),
        ("", '"1"'),
    ],
)
def test_a_part_that_is_not_the_rest_of_this_version_is_not_added(
    store: Store, tmp_path: Path, content_range: str, etag: str
) -> None:
    uri = answer_part(store, content_range, OTHER[HALF:], etag)
    assert get(uri, tmp_path, digest="").content == CONTENT


def test_a_part_that_is_compressed_is_refused(store: Store, tmp_path: Path) -> None:
    rest = f"bytes {HALF}-{len(CONTENT) - 1}/{len(CONTENT)}"
    uri = answer_part(store, rest, CONTENT[HALF:], encoding="gzip")
    with pytest.raises(StorageError, match="the server sent a compressed body"):
        get(uri, tmp_path, digest="")


@pytest.mark.parametrize("count", [1, 1000])
def test_a_part_that_ends_before_the_file_is_not_the_rest_of_it(store: Store, tmp_path: Path, count: int) -> None:
    body = CONTENT[HALF : HALF + count]
    uri = answer_part(store, f"bytes {HALF}-{HALF + count - 1}/{len(CONTENT)}", body)
    part = store.answers["/m.onnx"]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if len(store.asked) == 3:
            store.versioned("/m.onnx", CONTENT, '"1"')
        (part if len(store.asked) < 3 else store.answers["/m.onnx"])(handler)

    store.answers["/m.onnx"] = answer
    assert get(uri, tmp_path, digest="").content == CONTENT
    assert ranges(store) == ["", f"bytes={HALF}-", f"bytes={HALF + count}-"]


def test_a_part_with_more_bytes_than_its_range_is_not_the_rest_of_the_file(store: Store, tmp_path: Path) -> None:
    uri = answer_part(store, f"bytes {HALF}-{len(CONTENT) - 1}/{len(CONTENT)}", CONTENT[HALF:] + b"more")
    assert get(uri, tmp_path, digest="").content == CONTENT


def test_a_refusal_is_not_tried_again(store: Store, tmp_path: Path) -> None:
    with pytest.raises(HttpStatusError, match="404"):
        get(store.url("/nothing.onnx"), tmp_path)
    assert store.asked == ["/nothing.onnx"]


async def test_after_a_kill_the_next_process_goes_on(store: Store, tmp_path: Path) -> None:
    uri = store.versioned("/m.onnx", CONTENT, '"1"')
    whole, go_on = store.answers["/m.onnx"], threading.Event()

    def stops(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("ETag", '"1"')
        handler.send_header("Content-Length", str(len(CONTENT)))
        handler.end_headers()
        handler.wfile.write(CONTENT[:700_000])
        go_on.wait(20)

    store.answers["/m.onnx"] = stops
    script = "import sys; from pathlib import Path; from serving.storage.fetch import fetch; " \
             "fetch(sys.argv[1], sys.argv[2], Path(sys.argv[3]), frozenset({'127.0.0.1'}))"  # fmt: skip
    arguments = [uri, DIGEST, str(tmp_path / "cache")]
    with subprocess.Popen([sys.executable, "-c", script, *arguments]) as other:
        await eventually(lambda: sum(path.stat().st_size for path in tmp_path.rglob("parts/0")) >= 500_000)
        other.kill()
    go_on.set()
    store.answers["/m.onnx"] = whole
    assert get(uri, tmp_path).content == CONTENT
    assert int(ranges(store)[-1].removeprefix("bytes=").rstrip("-")) >= 500_000


def test_progress_is_told_over_all_connections(store: Store, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    uri = store.versioned("/m.onnx", CONTENT, '"1"', breaks=[300_000])
    get(uri, tmp_path, progress=lambda received, total: told.append((received, total)))
    received = [bytes_ for bytes_, _ in told]
    assert received == sorted(received) and told[-1] == (len(CONTENT), len(CONTENT))
    assert {total for _, total in told} == {len(CONTENT)}
