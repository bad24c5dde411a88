"""Where what was fetched lies: a folder of the user's own that several servers share, content-addressed, bounded.

CACHE/files/HEX/file      a file with this SHA-256, whatever it is called where it comes from
CACHE/folders/HEX/…       a folder with this digest (`digest.of_folder`)
CACHE/archives/HEX/HEX    an archive with the first digest was unpacked to the folder with the second
CACHE/images/HEX/HEX      likewise the manifest of an OCI artifact
CACHE/work/KEY/…          a download that goes on, or was interrupted and can be continued
CACHE/temporary/…         downloads whose digest is not known yet, and what is being deleted

What is found here is verified before each use: that it is there says nothing. An entry appears whole, by a rename. When
all together is larger than the limit, what was used least recently goes, but nothing that a process holds (`hold`).
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
from serving.storage.base.errors import Interrupted, Refused, StorageError
from serving.storage.hold import Hold, hold
from serving.storage.transfer.deadline import Deadline

FILE: Final = "file"  # in its folder: two URIs may call the same bytes by different names
FILES: Final = "files"
FOLDERS: Final = "folders"
ARCHIVES: Final = "archives"
IMAGES: Final = "images"
TEMPORARY: Final = "temporary"
_WORK: Final = "work"
_ENTRIES: Final = (FILES, FOLDERS, ARCHIVES, IMAGES, _WORK)  # what counts for the limit
_OTHERS_MAY_WRITE: Final = 0o022
_LOOK_AGAIN: Final = 0.1  # s between two looks whether another process has finished the same download


class Cache:
    """The cache in `folder`, which is made when missing; `limit` in bytes. Raises StorageError when it is not ours.

    Errors call it `name` and advise `remedy`.
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
        with self._writing():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder = folder = folder.resolve()  # files are read only where they really lie (`disk`)
            about = folder.stat()
            if about.st_uid != os.getuid() or about.st_mode & _OTHERS_MAY_WRITE:
                raise StorageError(f"{name} {folder} can be written by other users: {remedy}")
            for kind in (*_ENTRIES, TEMPORARY):
                (folder / kind).mkdir(mode=0o700, exist_ok=True)

    def find(self, kind: str, digest: str) -> Hold | None:
        """The entry's folder, held; None when there is none."""
        with self._writing():
            held = hold(self._place(kind, digest))
        if held is not None:
            with contextlib.suppress(OSError):  # a cache that may only be read
                os.utime(held.path)
        return held

    def keep(self, made: Path, kind: str, digest: str) -> Hold:
        """Move the finished folder `made` in as the entry of `digest`, held. Raises StorageError."""
        place = self._place(kind, digest)
        with self._writing():
            held = self._held(made)
            os.utime(made)
            if _moved(made, place) or (self.drop(place) and _moved(made, place)):
                held.path = place
            else:  # somebody holds the entry that is there
                self._move_to_temporary(held)
            self._shrink()
        return held

    def unpacked(self, kind: str, digest: str) -> str:
        """The digest of the folder that an archive or image was unpacked to; "" when it is not known."""
        place = self._place(kind, digest)
        with contextlib.suppress(OSError, StorageError):
            names = [entry.name for entry in place.iterdir()]
            os.utime(place)
            if len(names) == 1:
                found = digests.PREFIX + names[0]
                digests.check_form("", found)
                return found
        return ""

    def note_unpacked(self, kind: str, digest: str, folder: str) -> None:
        """Remember what `unpacked` tells. Raises StorageError."""
        place = self._place(kind, digest)
        with self._writing():
            shutil.rmtree(place, ignore_errors=True)
            (place / folder.removeprefix(digests.PREFIX)).mkdir(mode=0o700, parents=True)

    @contextlib.contextmanager
    def workplace(self, key: str, deadline: Deadline | None = None) -> Iterator[Path]:
        """A folder for the download called `key`, for this caller alone: others that want the same wait.

        What is in it when the store breaks off or refuses is found there the next time. Without a key it is a new one.
        Raises Interrupted when nobody leaves it until the deadline, StorageError.
        """
        held = self._enter(self._folder / _WORK / key if key else self._folder / TEMPORARY / _unique(), deadline)
        held.temporary = True
        try:
            yield held.path
        except (Interrupted, Refused):
            held.temporary = not key or not _size(held.path)
            held.release()
            with contextlib.suppress(StorageError), self._writing():
                self._shrink()
            raise
        finally:
            held.release()

    def drop(self, place: Path) -> bool:
        """Delete an entry unless somebody holds it; whether it is gone."""
        with self._writing():
            held = hold(place, alone=True)
            if held is None:
                return not place.exists()
            self._move_to_temporary(held)
        held.release()
        return True

    def _enter(self, place: Path, deadline: Deadline | None) -> Hold:
        while True:
            with self._writing():
                with contextlib.suppress(FileExistsError):  # `exist_ok` fails when it goes while it is looked at
                    place.mkdir(mode=0o700)
                held = hold(place, alone=True)
            if held is not None:
                return held
            if deadline is not None:
                deadline.check()
            self._sleep(_LOOK_AGAIN)

    def _held(self, made: Path) -> Hold:
        """Held before it is renamed, so that it is at no moment without anybody who holds it."""
        held = hold(made)
        if held is None:
            raise StorageError(f"{self._name} {self._folder} is changed by somebody else: {self._remedy}")
        return held

    def _move_to_temporary(self, held: Hold) -> None:
        held.path = held.path.rename(self._folder / TEMPORARY / _unique())
        held.temporary = True

    def _place(self, kind: str, digest: str) -> Path:
        return self._folder / kind / digest.removeprefix(digests.PREFIX)

    def _shrink(self) -> None:
        """Delete what dead processes left, and then what was used least recently until the rest fits."""
        for left in _folders(self._folder / TEMPORARY):
            self.drop(left)
        entries = sorted(
            (_used(entry), _size(entry), entry) for kind in _ENTRIES for entry in _folders(self._folder / kind)
        )
        total = sum(size for _, size, _ in entries)
        for _, size, entry in entries:
            if total <= self._limit:
                return
            total -= size if self.drop(entry) else 0

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"{self._name} {self._folder} cannot be used ({error.strerror}): {self._remedy}"
            ) from error


def _unique() -> str:
    return os.urandom(16).hex()


def _moved(made: Path, place: Path) -> bool:
    try:
        made.rename(place)
    except OSError:
        if place.exists():  # a folder that is not empty is never replaced
            return False
        raise
    return True


def _folders(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(folder.iterdir())
    return []


def _used(entry: Path) -> int:
    """When it was used last (ns), by any process: its folder's time of change."""
    with contextlib.suppress(OSError):
        return entry.stat().st_mtime_ns
    return 0


def _size(folder: Path) -> int:
    """Bytes of all files below; those that go meanwhile count nothing."""
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(where, name)).st_size  # noqa: PTH118 - thousands of files
    return total
