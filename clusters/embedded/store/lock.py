"""One platform per state folder: an advisory lock that the system drops with the process, however that ends."""

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
OTHERS_WRITE = 0o022  # by the mode of a folder
READER_ATTEMPTS = 20  # to take the lock from commands that read who holds it, each for some microseconds
READER_PAUSE = 0.005  # s


class Locked(KnodelError):
    """Another platform works in the state folder; `pid` is its process, 0 when unknown."""

    def __init__(self, message: str, pid: int) -> None:
        super().__init__(message)
        self.pid = pid


class ReadOnlyFolder(KnodelError):
    """The state folder is on a read-only disk, so that no platform can start on it."""


class FolderLock:
    """Held from `acquire` to `release`, or to the end of the process. Not inherited by programs that it starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises Locked, which names the process that holds it, ReadOnlyFolder, and KnodelError for an unfit folder.
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
            raise Locked(self._told(pid), pid) from error
        except OSError as error:
            os.close(descriptor)
            raise KnodelError(f"cannot lock {path}: {error.strerror}: use a state folder on a local disk") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back. The file stays: removing it would let two others in at once."""
        if self._descriptor is not None:
            with suppress(OSError):  # a disk that has become read-only; closing the file gives the lock back
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> FolderLock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def _told(self, pid: int) -> str:
        who = f"process {pid}" if pid else "another process"
        return f"{who} already runs a platform in {self._folder}: stop it with `knodel down`, or use another folder"


def prepare_folder(folder: Path) -> None:
    """Make the state folder, for this user only, or check the one that is there.

    Whoever may write to it could plant links and files there that the platform follows and trusts. Raises KnodelError
    when another user owns it or may write to it; root may use the folder of any user.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise KnodelError(f"cannot use the state folder {folder}: {error.strerror}") from error
    if is_foreign(status.st_uid):
        raise KnodelError(belongs_to(folder, status.st_uid))
    if status.st_mode & OTHERS_WRITE:
        raise KnodelError(f"other users may write to the state folder {folder}: `chmod go-w {folder}`")


def owner_of(folder: Path) -> int | None:
    """Return the user that owns the folder; when it may not be seen, that of the nearest parent that may.

    None when it is not there.
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
    """Return whether folders of this user are not for the one who asks; root may use those of any user."""
    return owner is not None and os.geteuid() not in (owner, ROOT)


def belongs_to(folder: Path, owner: int | None) -> str:
    """Return the refusal of another user's state folder, with the remedy."""
    return f"the state folder {folder} belongs to user {owner}: name your own with --state or KNODEL_STATE"


def holder(folder: Path) -> int | None:
    """Return the process that runs a platform in `folder` (0 when it is not known), or None when none does.

    The lock file is only read, so this works on a read-only disk. Raises KnodelError when the file cannot be opened or
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
    """Take the lock. A reader (`holder`) has it for a moment, so another attempt follows. Raises BlockingIOError."""
    for _ in range(READER_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if identify(_read_pid(descriptor)) is not None:
                break  # a platform, which does not end by itself
            time.sleep(READER_PAUSE)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _read_pid(descriptor: int) -> int:
    text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return int(text) if text.isdecimal() else 0
