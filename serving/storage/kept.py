"""Copies of local model files, kept by content, so that a version stays what it was when its source changes or goes.

KEPT has the layout of a cache (`serving.storage.cache`). Unlike a cache it does not drop what was used least recently:
a copy stays until `collect` finds that no version needs it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

from serving.storage import digest as digests
from serving.storage import disk
from serving.storage.archive import is_archive, unpack
from serving.storage.artifact import Artifact
from serving.storage.cache import ARCHIVES, FILE, FILES, FOLDERS, Cache
from serving.storage.errors import StorageError
from serving.storage.local import Place, is_folder, real_path

LIMIT: Final = 64 << 30  # bytes of all copies together
LIMIT_VARIABLE: Final = "KNODEL_KEPT_LIMIT"
FOLDER_VARIABLE: Final = "KNODEL_KEPT"
_AT_ONCE: Final = 1 << 30  # bytes that one call copies
_READ_ONLY: Final = 0o400


def limit_of(environ: Mapping[str, str]) -> int:
    """Return the limit in bytes: KNODEL_KEPT_LIMIT, else LIMIT. Raises StorageError."""
    text = environ.get(LIMIT_VARIABLE) or str(LIMIT)
    if not (text.isascii() and text.isdigit()):
        raise StorageError(f"{LIMIT_VARIABLE}={text[:80]!r} is not a number of bytes")
    return int(text)


def fetch_kept(place: Place, uri: str, digest: str, kept: Path, limit: int) -> Artifact:
    """Return the copy with this digest; else copy the file or folder at `place` and return that copy.

    With an empty digest it is always a copy of what is there now. Raises StorageError.
    """
    found = _find(place, uri, digest, kept) if digest else None
    if found is None:
        digest = keep(place, uri, digest, kept, limit)
        found = _find(place, uri, digest, kept)
    if found is None:
        raise StorageError(f"{uri}: the copy in {kept} was deleted while it was read: try again")
    return found


def keep(place: Place, uri: str, digest: str, kept: Path, limit: int) -> str:
    """Copy the file, folder or archive at `place` into `kept`, unless it is there, and return its digest.

    Raises StorageError: nothing is there, its digest is not `digest`, or all copies would exceed `limit` bytes.
    """
    found = digest_at(place, uri)
    digests.check(uri, digest, found)
    cache = Cache(kept, sys.maxsize)
    if _touch(kept, found):
        return found
    used, size = size_of(kept), size_of(place.path)
    if used + size > limit:
        raise StorageError(
            f"{uri}: has {size} bytes, and kept model files have {used} of {limit} already: delete models that are "
            f"not needed, or set {LIMIT_VARIABLE} to more bytes and start the platform again"
        )
    with cache.workplace("") as work:
        try:
            return _copy_in(place, uri, cache, work)
        except OSError as error:
            raise StorageError(f"{uri}: cannot be copied to {kept} ({error.strerror}): make room") from error


def digest_at(place: Place, uri: str) -> str:
    """Return the digest of the file or folder at `place` as it is now. Raises StorageError."""
    if is_folder(place.path, uri):
        return digests.of_folder(disk.digest_files(real_path(place.path, uri), uri))
    with disk.open_regular(place.path, uri, place.root) as file:
        try:
            return digests.of_open_file(file)
        except OSError as error:
            raise StorageError(f"{uri}: cannot be read ({error.strerror})") from error


def is_kept(kept: Path, digest: str) -> bool:
    """Whether there is a copy with this digest."""
    return any((kept / kind / _name(digest)).is_dir() for kind in (FILES, FOLDERS, ARCHIVES))


def collect(kept: Path, living: Collection[str], before: float) -> int:
    """Delete copies that were used last before then (s since 1970) and whose digests are not `living`; count them."""
    if not kept.is_dir():
        return 0
    cache = Cache(kept, sys.maxsize)
    needed = {_name(digest) for digest in living}
    unpacked = {entry.name for name in needed for entry in _entries(kept / ARCHIVES / name)}
    doomed = [
        entry
        for kind, wanted in ((FILES, needed), (FOLDERS, needed | unpacked), (ARCHIVES, needed))
        for entry in _entries(kept / kind)
        if entry.name not in wanted and _used_at(entry) < before
    ]
    return sum(cache.drop(entry) for entry in doomed)


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; files that vanish meanwhile count nothing."""
    total = 0
    with suppress(OSError):
        total = path.stat().st_size if path.is_file() else 0
    for where, _, files in os.walk(path):
        for name in files:
            with suppress(OSError):
                total += (Path(where) / name).stat().st_size
    return total


def _find(place: Place, uri: str, digest: str, kept: Path) -> Artifact | None:
    """Return the verified copy; None when there is none. A damaged one is deleted."""
    name = _name(digest)
    unpacked = next(iter(_entries(kept / ARCHIVES / name)), None)
    folder = kept / FOLDERS / (unpacked.name if unpacked else name)
    try:
        if (kept / FILES / name / FILE).is_file():
            content = disk.read_file(kept / FILES / name / FILE, uri)
            digests.check(uri, digest, digests.of_bytes(content))
            return Artifact(place.path, content, {}, uri, digest=digest)
        if not folder.is_dir():
            return None
        real = folder.resolve()
        files = disk.digest_files(real, uri)
        digests.check(uri, digests.PREFIX + folder.name, digests.of_folder(files))
    except StorageError:
        for kind in (FILES, FOLDERS, ARCHIVES):
            Cache(kept, sys.maxsize).drop(kept / kind / name)
        Cache(kept, sys.maxsize).drop(folder)
        return None
    return Artifact(real, None, files, uri, digest=digest)


def _copy_in(place: Place, uri: str, cache: Cache, work: Path) -> str:
    target = work / "copy"
    target.mkdir(mode=0o700)
    if is_folder(place.path, uri):
        root = real_path(place.path, uri)
        files = {}
        for name in disk.list_files(root, uri):
            with disk.open_regular(root / name, f"{uri}: {name!r}", root) as source:
                (target / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                files[name] = _copy(source, target / name)
        digest = digests.of_folder(files)
        cache.keep(target, FOLDERS, digest)
        return digest
    with disk.open_regular(place.path, uri, place.root) as source:
        if not is_archive(place.path.name):
            digest = _copy(source, target / FILE)
            cache.keep(target, FILES, digest)
            return digest
        digest = _copy(source, work / FILE)
    unpacked = digests.of_folder(unpack(work / FILE, place.path.name, target, uri))
    cache.keep(target, FOLDERS, unpacked)
    cache.note_unpacked(ARCHIVES, digest, unpacked)
    return digest


def _copy(source: FileIO, target: Path) -> str:
    """Copy a file, sharing its blocks where the file system can, and return the digest of the copy."""
    with target.open("xb", buffering=0) as file:
        try:
            while os.copy_file_range(source.fileno(), file.fileno(), _AT_ONCE):
                pass
        except OSError:  # not between these file systems: copy what is left
            shutil.copyfileobj(source, file)
    target.chmod(_READ_ONLY)
    with disk.open_regular(target, target.name) as file_again:
        return digests.of_open_file(file_again)


def _touch(kept: Path, digest: str) -> bool:
    """Note that a copy is used now; False when there is none."""
    for kind in (FILES, FOLDERS, ARCHIVES):
        with suppress(OSError):
            os.utime(kept / kind / _name(digest))
    return is_kept(kept, digest)


def _name(digest: str) -> str:
    return digest.removeprefix(digests.PREFIX)


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError):
        return list(folder.iterdir())
    return []


def _used_at(entry: Path) -> float:
    with suppress(OSError):
        return entry.stat().st_mtime
    return 0.0
