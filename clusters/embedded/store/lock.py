"""Allow one platform per state folder, by an advisory lock that the kernel releases when the process ends."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from clusters.base.errors import KnodelError
from clusters.base.identity import identify

FILE_NAME = "lock"
ROOT = 0
OTHERS_WRITE = 0o022  # permission bits
READER_ATTEMPTS = 20  # while commands hold the lock for some microseconds to read its owner
READER_PAUSE = 0.005  # s


class Locked(KnodelError):
    """Another platform uses the state folder; `pid` is its process, or 0 when unknown."""

    def __init__(self, message: str, pid: int) -> None:
        super().__init__(message)
        self.pid = pid


class ReadOnlyFolder(KnodelError):
    """The state folder is on a read-only disk, so no platform can start with it."""


class FolderLock:
    """A lock that is held from `acquire` to `release` or the end of the process. Child processes do not inherit it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises Locked, which names the process that holds it, ReadOnlyFolder, and KnodelError for an unsuitable folder.
        """
        path = self._folder / FILE_NAME
        prepare_folder(self._folder)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            kind = ReadOnlyFolder if error.errno == errno.EROFS else KnodelError
            raise kind(f"cannot use the state folder {self._folder}: {error.strerror}") from error
        try:
            _lock(descriptor)
        except BlockingIOError as error:
            pid = _read_pid(descriptor)
            os.close(descriptor)
            who = f"process {pid}" if pid else "another process"
            message = (
                f"{who} already runs a platform in {self._folder}: stop it with `knodel down`, or use another folder"
            )
            raise Locked(message, pid) from error
        except OSError as error:
            os.close(descriptor)
            raise KnodelError(f"cannot lock {path}: {error.strerror}: use a state folder on a local disk") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock. The file remains: without it two other processes could lock different files."""
        if self._descriptor is not None:
            with suppress(OSError):  # the disk became read-only; closing the file releases the lock
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> FolderLock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def prepare_folder(folder: Path) -> None:
    """Create the state folder for this user only, or check an existing one.

    A user who can write to it could add links and files that the platform trusts. Raises KnodelError when another user
    owns it or can write to it. Root may use the folder of any user.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise KnodelError(f"cannot use the state folder {folder}: {error.strerror}") from error
    if is_foreign(status.st_uid):
        raise KnodelError(belongs_to(folder, status.st_uid))
    if status.st_mode & OTHERS_WRITE:
        raise KnodelError(f"other users can write to the state folder {folder}: run `chmod go-w {folder}`")


def owner_of(folder: Path) -> int | None:
    """Return the user that owns the folder, or None when it does not exist.

    For a folder without access, return the owner of its nearest accessible parent.
    """
    for one in (folder, *folder.parents):
        try:
            return one.stat().st_uid
        except PermissionError:
            continue
        except OSError:
            return None
    return None


def is_foreign(owner: int | None) -> bool:
    """Return whether a folder of user `owner` must not be used by this process. Root may use those of any user."""
    return owner is not None and os.geteuid() not in (owner, ROOT)


def belongs_to(folder: Path, owner: int | None) -> str:
    """Return the error message for the state folder of another user."""
    return f"the state folder {folder} belongs to user {owner}: choose another one with --state or KNODEL_STATE"


def holder(folder: Path) -> int | None:
    """Return the process that runs a platform in `folder` (0 when unknown), or None when there is none.

    This only reads the lock file, so it works on a read-only disk. Raises KnodelError when the file cannot be opened or
    locked.
    """
    path = folder / FILE_NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        owner = owner_of(folder)
        what = belongs_to(folder, owner) if is_foreign(owner) else f"cannot open {path}: `chmod 600 {path}`"
        raise KnodelError(what) from error
    except OSError as error:
        raise KnodelError(f"cannot open {path}: {error.strerror}: use a state folder on a local disk") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_pid(descriptor)
    except OSError as error:
        raise KnodelError(f"cannot lock {path}: {error.strerror}: use a state folder on a local disk") from error
    finally:
        os.close(descriptor)
    return None


def _lock(descriptor: int) -> None:
    """Take the lock. Retry while a reader (`holder`) has it, which is brief. Raises BlockingIOError."""
    for _ in range(READER_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if identify(_read_pid(descriptor)) is not None:
                break  # a platform, which does not release it
            time.sleep(READER_PAUSE)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _read_pid(descriptor: int) -> int:
    text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return int(text) if text.isdecimal() else 0
