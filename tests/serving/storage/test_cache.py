"""The cache: shared by processes, bounded, and verified before each use."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from serving.storage.base.digest import of_bytes
from serving.storage.base.errors import HttpStatusError, StorageError, TransferInterrupted
from serving.storage.cache import FILES, FOLDERS, Cache
from serving.storage.fetch import StorageOptions, fetch, options_from
from serving.storage.transfer.limits import TransferDeadline
from tests.serving.storage.archives import MODEL, tar
from tests.serving.storage.conftest import LOOPBACK, Store
from tests.support.wait import eventually

SIZE = 1000


def digest(letter: str) -> str:
    return "sha256:" + letter * 64


def put(cache: Cache, letter: str, used: int) -> Path:
    """Add an entry of SIZE bytes, last used at `used` (ns)."""
    with cache.work_folder("") as work:
        made = work / "made"
        made.mkdir()
        (made / "file").write_bytes(letter.encode() * SIZE)
        held = cache.add(made, FILES, digest(letter))
    os.utime(held.path, ns=(used, used))
    return held.path


def test_what_was_used_least_recently_goes_when_it_is_full(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 3 * SIZE)
    entries = [put(cache, letter, used) for used, letter in enumerate("abc", start=1)]
    cache.find(FILES, digest("a"))
    put(cache, "d", 4)
    assert [entry.exists() for entry in entries] == [True, False, True]


def test_what_somebody_uses_stays_though_it_is_full(tmp_path: Path) -> None:
    cache = Cache(tmp_path, SIZE)
    first = put(cache, "a", 1)
    held = cache.find(FILES, digest("a"))
    os.utime(first, ns=(1, 1))
    put(cache, "b", 2)
    assert first.exists() and held is not None
    held.release()
    put(cache, "c", 3)
    assert not first.exists()


def test_another_process_can_be_the_one_that_uses_it(tmp_path: Path) -> None:
    cache = Cache(tmp_path, SIZE)
    entry = put(cache, "a", 1)
    script = "import sys; from pathlib import Path; from serving.storage.folder_lock import lock_folder; " \
             "held = lock_folder(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", script, str(entry)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        put(cache, "b", 2)
        assert entry.exists()
        other.send_signal(signal.SIGKILL)
    put(cache, "c", 3)
    assert not entry.exists()


def test_an_entry_that_is_in_use_is_not_replaced(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1 << 20)
    put(cache, "a", 1)
    held = cache.find(FILES, digest("a"))
    assert held is not None
    inode = held.path.stat().st_ino
    again = put(cache, "a", 2)
    assert held.path.stat().st_ino == inode and again != held.path


def test_what_a_dead_process_left_is_deleted(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1 << 20)
    left = tmp_path / "temporary" / "left"
    left.mkdir()
    (left / "file").write_bytes(b"x")
    put(cache, "a", 1)
    assert not left.exists()


def test_a_workplace_is_kept_when_the_store_breaks_off_or_refuses(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1 << 20)
    with pytest.raises(TransferInterrupted), cache.work_folder("key") as work:
        (work / "part").write_bytes(b"x")
        raise TransferInterrupted("broken")
    with pytest.raises(HttpStatusError), cache.work_folder("key") as work:
        assert (work / "part").read_bytes() == b"x"
        raise HttpStatusError("the token has ended", 401)
    with pytest.raises(StorageError), cache.work_folder("key") as work:
        assert (work / "part").read_bytes() == b"x"
        raise StorageError("damaged")
    with cache.work_folder("key") as work:
        assert list(work.iterdir()) == []
    assert not work.exists()
    with pytest.raises(HttpStatusError), cache.work_folder("key") as work:
        (work / "part").write_bytes(b"")
        raise HttpStatusError("not found", 404)
    assert not work.exists()


def test_workplaces_that_are_kept_count_for_the_limit(tmp_path: Path) -> None:
    cache = Cache(tmp_path, SIZE)
    for key in ("first", "second"):
        with pytest.raises(TransferInterrupted), cache.work_folder(key) as work:
            (work / "part").write_bytes(b"x" * SIZE)
            raise TransferInterrupted("broken")
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["second"]


def test_who_waits_for_another_process_does_so_until_the_deadline(tmp_path: Path) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    cache = Cache(tmp_path, 1 << 20, sleep)
    deadline = TransferDeadline("uri", 5, lambda: clock[0])
    with cache.work_folder("key"), pytest.raises(TransferInterrupted, match="5 s"), cache.work_folder("key", deadline):
        pass
    assert 5 <= clock[0] < 6


def test_a_cache_may_be_named_by_a_link(store: Store, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    content = tar(MODEL)
    uri = store.file("/m.tar", content)
    for _ in range(2):
        artifact = fetch(uri, of_bytes(content), tmp_path / "link", LOOPBACK)
        assert {name: artifact.read(name) for name in artifact.names()} == MODEL
    assert store.asked == ["/m.tar"]


async def test_who_wants_the_same_waits_and_finds_it(store: Store, tmp_path: Path) -> None:
    content = b"x" * 100_000
    promised = "sha256:" + hashlib.sha256(content).hexdigest()
    uri = store.file("/m.onnx", content)
    whole, begun, go_on = store.answers["/m.onnx"], threading.Event(), threading.Event()

    def slowly(handler: BaseHTTPRequestHandler) -> None:
        begun.set()
        assert go_on.wait(10)
        whole(handler)

    store.answers["/m.onnx"] = slowly
    got: list[bytes | None] = []

    def get() -> None:
        got.append(fetch(uri, promised, tmp_path / "cache", LOOPBACK).content)

    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    go_on.set()
    await eventually(lambda: len(got) == len(threads))
    assert got == [content] * len(threads) and store.asked == ["/m.onnx"]


def test_a_download_whose_folder_goes_while_it_is_looked_for_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, made, gone = Cache(tmp_path, 1 << 20, sleep=lambda _: None), os.mkdir, [FileExistsError(errno.EEXIST, "")]

    def mkdir(path: Path, mode: int) -> None:
        if gone:
            raise gone.pop()  # of who had it and finished: it is not there any more
        made(path, mode)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with cache.work_folder("a") as work:
        assert work.is_dir() and not gone


def test_what_is_dropped_is_gone_and_may_be_dropped_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 1 << 20)
    entry = put(cache, "a", 1)
    assert cache.delete(entry) and not entry.exists() and cache.delete(entry)
    assert cache.find(FOLDERS, digest("a")) is None


@pytest.mark.parametrize("names", [[], ["0" * 64, "1" * 64], ["no digest"]])
def test_a_note_that_makes_no_sense_is_none(tmp_path: Path, names: list[str]) -> None:
    cache = Cache(tmp_path, 1 << 20)
    for name in names:
        (tmp_path / "archives" / ("a" * 64) / name).mkdir(parents=True)
    assert cache.unpacked_digest("archives", digest("a")) == ""
    cache.record_unpacked("archives", digest("a"), digest("b"))
    assert cache.unpacked_digest("archives", digest("a")) == digest("b")


def test_a_cache_in_a_place_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="choose another folder"):
        Cache(tmp_path / "file", 1)


def test_the_limit_is_a_number_of_bytes() -> None:
    assert options_from({"KNODEL_CACHE_LIMIT": "5"}).cache_limit == 5
    assert options_from({}) == StorageOptions({})
    with pytest.raises(StorageError, match="bytes"):
        options_from({"KNODEL_CACHE_LIMIT": "5 GB"})


def test_the_files_at_once_are_a_number_within_bounds() -> None:
    limits = options_from({"KNODEL_FILES_AT_ONCE": "3"}).limits
    assert limits is not None and limits.files_at_once == 3
    for value in ("0", "65", "-1", "two"):
        with pytest.raises(StorageError, match="KNODEL_FILES_AT_ONCE"):
            options_from({"KNODEL_FILES_AT_ONCE": value})
