"""One platform per state folder."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clusters.base.errors import KnodelError
from clusters.base.removal import remove_files
from clusters.embedded.store.lock import FolderLock, Locked, ReadOnlyFolder, holder
from tests.support.mounts import MayNotMount, in_mount_namespace, make_read_only

HOLDER = """
import sys
from pathlib import Path
from clusters.embedded.store.lock import FolderLock
FolderLock(Path(sys.argv[1])).acquire() or print("locked", flush=True)
sys.stdin.read()
"""


async def start_holder(folder: Path) -> asyncio.subprocess.Process:
    """Start another process that has the lock."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(folder), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"locked\n"
    return process


@pytest.mark.fault("I10")
async def test_a_second_platform_is_told_which_process_is_the_first(tmp_path: Path) -> None:
    process = await start_holder(tmp_path)
    with pytest.raises(Locked, match=f"process {process.pid} ") as told:
        FolderLock(tmp_path).acquire()
    assert told.value.pid == process.pid == holder(tmp_path)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    assert holder(tmp_path) is None
    with FolderLock(tmp_path):
        assert holder(tmp_path) == os.getpid()


def test_a_released_lock_is_free(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path / "new" / "folder")
    with lock, pytest.raises(Locked):
        FolderLock(tmp_path / "new" / "folder").acquire()
    lock.release()
    FolderLock(tmp_path / "new" / "folder").acquire()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KnodelError, match="state folder"):
        FolderLock(tmp_path / "file").acquire()


def test_a_folder_into_which_others_may_write_is_refused_until_the_remedy_is_applied(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o770)
    with pytest.raises(KnodelError, match="other users can write") as refused:
        FolderLock(folder).acquire()
    assert list(folder.iterdir()) == []

    remedy = str(refused.value).partition("`")[2].rstrip("`")
    subprocess.run(shlex.split(remedy), check=True)

    with FolderLock(folder):
        assert (folder / "lock").exists()


@pytest.mark.fault("I10")
def test_a_lock_file_is_no_sign_of_a_platform(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("99999\n")
    assert holder(tmp_path) is None
    assert holder(tmp_path / "absent") is None


def test_a_read_only_disk_hides_no_platform_and_takes_no_new_one(tmp_path: Path) -> None:
    held, free = tmp_path / "held", tmp_path / "free"
    with FolderLock(free):
        pass
    lock = FolderLock(held)
    lock.acquire()

    def work() -> None:
        make_read_only(tmp_path)
        assert holder(held) == os.getpid()
        assert holder(free) is None
        with pytest.raises(ReadOnlyFolder, match="Read-only file system"):
            FolderLock(free).acquire()
        assert remove_files(held / "lock", held / "absent") == [held / "lock"]

    try:
        in_mount_namespace(work)
    except MayNotMount as error:
        pytest.skip(f"no read-only disk here: {error}")
    finally:
        lock.release()


def test_a_lock_that_cannot_be_opened_is_no_free_one(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "lock")
    with pytest.raises(KnodelError, match="lock: Too many levels of symbolic links"):
        holder(tmp_path)


async def test_programs_that_a_platform_starts_do_not_keep_its_lock(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    lock.acquire()
    process = await asyncio.create_subprocess_exec("sleep", "30")
    lock.release()
    assert holder(tmp_path) is None
    process.kill()
    await process.wait()
