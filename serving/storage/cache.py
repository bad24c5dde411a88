"""A cache of downloads on disk: addressed by content, bounded, and shared by the servers of one user.

CACHE/files/HEX/file      a file with this SHA-256, whatever its name in the store
CACHE/folders/HEX/…       a folder with this digest (`digest.of_folder`)
CACHE/archives/HEX/HEX    the archive with the first digest unpacks to the folder with the second
CACHE/images/HEX/HEX      the same for the manifest of an OCI image
CACHE/work/KEY/…          a download in progress, or an interrupted one to resume
CACHE/temporary/…         downloads without an expected digest, and folders that are being deleted

Callers verify an entry before each use. An entry appears in whole, by a rename. When the cache exceeds its limit, the
least recently used entries are deleted, except for those that a process has locked (`folder_lock`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from serving.storage.base import digest as digests
from serving.storage.base.errors import HttpStatusError, StorageError, TransferInterrupted
from serving.storage.folder_lock import LockedFolder, lock_folder
from serving.storage.transfer.limits import TransferDeadline

FILE: Final = "file"  # in the entry's folder: two URIs may have different names for the same bytes
FILES: Final = "files"
FOLDERS: Final = "folders"
ARCHIVES: Final = "archives"
IMAGES: Final = "images"
TEMPORARY: Final = "temporary"
_WORK: Final = "work"
_ENTRIES: Final = (FILES, FOLDERS, ARCHIVES, IMAGES, _WORK)  # these count for the limit
_OTHERS_MAY_WRITE: Final = 0o022
_POLL_INTERVAL: Final = 0.1  # s, while another process downloads the same artifact


class Cache:
    """The cache in `folder`, which is created if absent, of at most `limit` bytes.

    Raises StorageError when another user may write to the folder. Errors call it `name` and end with `remedy`.
    """

    def __init__(
        self,
        folder: Path,
        limit: int,
        sleep: Callable[[float], None] = time.sleep,
        *,
        name: str = "the cache",
        remedy: str = "choose another folder",
    ) -> None:
        self._folder = folder
        self._name = name
        self._remedy = remedy
        self._limit = limit
        self._sleep = sleep
        with self._os_errors():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder = folder = folder.resolve()  # `disk` compares real paths
            about = folder.stat()
            if about.st_uid != os.getuid() or about.st_mode & _OTHERS_MAY_WRITE:
                raise StorageError(f"{name} {folder} can be written by other users: {remedy}")
            for kind in (*_ENTRIES, TEMPORARY):
                (folder / kind).mkdir(mode=0o700, exist_ok=True)

    def find(self, kind: str, digest: str) -> LockedFolder | None:
        """Return the entry's folder, locked; None when there is no such entry. Raises StorageError."""
        with self._os_errors():
            locked = lock_folder(self._path(kind, digest))
        if locked is not None:
            with contextlib.suppress(OSError):  # the cache may be read-only
                os.utime(locked.path)
        return locked

    def add(self, made: Path, kind: str, digest: str) -> LockedFolder:
        """Move the finished folder `made` to the entry of `digest` and return it, locked. Raises StorageError."""
        path = self._path(kind, digest)
        with self._os_errors():
            locked = lock_folder(made)  # before the rename, so that no other process can delete it
            if locked is None:
                raise StorageError(f"{self._name} {self._folder} is changed by another process: {self._remedy}")
            os.utime(made)
            if _move(made, path) or (self.delete(path) and _move(made, path)):
                locked.path = path
            else:  # another process has locked the present entry
                self._move_to_temporary(locked)
            self._shrink()
        return locked

    def unpacked_digest(self, kind: str, digest: str) -> str:
        """Return the digest of the folder that an archive or image unpacks to; "" when it is unknown."""
        path = self._path(kind, digest)
        with contextlib.suppress(OSError, StorageError):
            names = [entry.name for entry in path.iterdir()]
            os.utime(path)
            if len(names) == 1:
                found = digests.PREFIX + names[0]
                digests.check_form("", found)
                return found
        return ""

    def record_unpacked(self, kind: str, digest: str, folder: str) -> None:
        """Record the result of `unpacked_digest`. Raises StorageError."""
        path = self._path(kind, digest)
        with self._os_errors():
            shutil.rmtree(path, ignore_errors=True)
            (path / folder.removeprefix(digests.PREFIX)).mkdir(mode=0o700, parents=True)

    @contextlib.contextmanager
    def work_folder(self, key: str, deadline: TransferDeadline | None = None) -> Iterator[Path]:
        """Yield a folder for the download `key` that no other caller uses; callers with the same key wait.

        After TransferInterrupted or HttpStatusError its files stay for the next call. Without a key the folder is new.
        Raises TransferInterrupted when another caller uses it until the deadline, StorageError.
        """
        path = self._folder / _WORK / key if key else self._folder / TEMPORARY / _unique()
        locked = self._lock_work_folder(path, deadline)
        locked.temporary = True
        try:
            yield locked.path
        except (TransferInterrupted, HttpStatusError):
            locked.temporary = not key or not _size(locked.path)
            locked.release()
            with contextlib.suppress(StorageError), self._os_errors():
                self._shrink()
            raise
        finally:
            locked.release()

    def delete(self, path: Path) -> bool:
        """Delete an entry unless another process has locked it; return whether it is gone. Raises StorageError."""
        with self._os_errors():
            locked = lock_folder(path, exclusive=True)
            if locked is None:
                return not path.exists()
            self._move_to_temporary(locked)
        locked.release()
        return True

    def _lock_work_folder(self, path: Path, deadline: TransferDeadline | None) -> LockedFolder:
        while True:
            with self._os_errors():
                with contextlib.suppress(FileExistsError):  # `exist_ok` fails when the folder is deleted meanwhile
                    path.mkdir(mode=0o700)
                locked = lock_folder(path, exclusive=True)
            if locked is not None:
                return locked
            if deadline is not None:
                deadline.check()
            self._sleep(_POLL_INTERVAL)

    def _move_to_temporary(self, locked: LockedFolder) -> None:
        locked.path = locked.path.rename(self._folder / TEMPORARY / _unique())
        locked.temporary = True

    def _path(self, kind: str, digest: str) -> Path:
        return self._folder / kind / digest.removeprefix(digests.PREFIX)

    def _shrink(self) -> None:
        """Delete folders of dead processes, and then the least recently used entries until the rest fits."""
        for left in _entries(self._folder / TEMPORARY):
            self.delete(left)
        entries = sorted(
            (_last_used(entry), _size(entry), entry) for kind in _ENTRIES for entry in _entries(self._folder / kind)
        )
        total = sum(size for _, size, _ in entries)
        for _, size, entry in entries:
            if total <= self._limit:
                return
            total -= size if self.delete(entry) else 0

    @contextlib.contextmanager
    def _os_errors(self) -> Iterator[None]:
        """Raise StorageError for OSError."""
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"{self._name} {self._folder} cannot be used ({error.strerror}): {self._remedy}"
            ) from error


def _unique() -> str:
    return os.urandom(16).hex()


def _move(made: Path, path: Path) -> bool:
    """Rename a folder; return False when there is one at `path` already."""
    try:
        made.rename(path)
    except OSError:
        if path.exists():  # `rename` never replaces a folder that has files
            return False
        raise
    return True


def _entries(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(folder.iterdir())
    return []


def _last_used(entry: Path) -> int:
    """Return the time of the last use by any process (ns): the folder's modification time."""
    with contextlib.suppress(OSError):
        return entry.stat().st_mtime_ns
    return 0


def _size(folder: Path) -> int:
    """Return the bytes of all files below a folder, without those that are deleted meanwhile."""
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(where, name)).st_size  # noqa: PTH118 - thousands of files
    return total
