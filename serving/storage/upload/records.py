"""Records of unfinished uploads, so that the same command continues where an earlier one was interrupted.

FOLDER/HEX    for an upload to a target, HEX the SHA-256 of its URI: `{"session": "…"}`, the store's own name of the
              unfinished upload

A record is locked while its upload runs; a second process with the same target keeps no record. A record that cannot be
read, or that the store does not accept any more, starts the upload over. Records older than LONGEST are deleted, since
stores have dropped such uploads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows, where records are not locked: two uploads of the same files send them twice
    fcntl = None  # type: ignore[assignment]

LONGEST: Final = 7 * 86_400.0  # s, as long as Google keeps an unfinished upload
_LARGEST: Final = 1 << 16  # bytes
_ON_WINDOWS: Final = os.name == "nt"
_OPEN: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class UploadRecord:
    """The record of one upload: `session` is "" for a new one. Without a descriptor, it is not kept."""

    def __init__(
        self, path: Path | None = None, descriptor: int = -1, warn: Callable[[OSError], None] = lambda _: None
    ) -> None:
        self._path = path
        self._descriptor = descriptor
        self._warn = warn
        self.session = _read(descriptor) if descriptor >= 0 else ""

    def save(self, session: str) -> None:
        """Write the session, durably. A full disk leads to a warning, since the upload itself can go on."""
        self.session = session
        if self._descriptor < 0:
            return
        try:
            content = json.dumps({"session": session}).encode()
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            os.write(self._descriptor, content)
            os.fsync(self._descriptor)
        except OSError as error:
            self._warn(error)

    def delete(self) -> None:
        """Delete the record, since the upload is complete; the file is deleted by `close`."""
        self.session = ""

    def close(self) -> None:
        """Release the lock, and delete a record without a session."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0 or self._path is None:
            return
        with contextlib.suppress(OSError):
            if not self.session and not _ON_WINDOWS:  # while the lock is held
                self._path.unlink()
        os.close(descriptor)
        with contextlib.suppress(OSError):
            if not self.session and _ON_WINDOWS:  # which deletes no open file
                self._path.unlink()


class UploadRecords:
    """The records in a folder, which is created if absent; `warn` gets at most one line about it."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._warn = warn
        self._warned = False
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._delete_old()
        except OSError as error:
            self._cannot(error)

    @contextlib.contextmanager
    def open(self, target: str) -> Iterator[UploadRecord]:
        """Yield the record of the upload to the URI `target`, locked."""
        record = self._lock(self._folder / hashlib.sha256(target.encode()).hexdigest())
        try:
            yield record
        finally:
            record.close()

    def _lock(self, path: Path) -> UploadRecord:
        try:
            descriptor = os.open(path, _OPEN, 0o600)
        except OSError as error:
            self._cannot(error)
            return UploadRecord()
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.lstat()):  # else another process has just deleted it
                return UploadRecord(path, descriptor, self._cannot)
        except OSError:  # another process uploads to this target
            pass
        os.close(descriptor)
        return UploadRecord()

    def _cannot(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            reason = f"{self._folder} cannot be written ({error.strerror})"
            self._warn(f"{reason}: an interrupted upload would start over; make room")

    def _delete_old(self) -> None:
        before = time.time() - LONGEST
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):
                if path.lstat().st_mtime < before:
                    path.unlink()


def _read(descriptor: int) -> str:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads(os.read(descriptor, _LARGEST))
        session = found.get("session") if isinstance(found, dict) else None
        return session if isinstance(session, str) else ""
    return ""
