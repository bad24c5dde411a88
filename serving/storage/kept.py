"""Keep copies of local model files by digest, so that a version is unchanged when its source is changed or deleted.

The folder has the layout of a cache (`serving.storage.cache`). Unlike in a cache, an entry stays until
`delete_unused` finds no version that needs it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple

from clusters.base.sizes import format_size
from serving.storage.archives.archive import is_archive, unpack
from serving.storage.base import digest as digests
from serving.storage.base import disk
from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import RetryableStorageError, StorageError
from serving.storage.cache import ARCHIVES, FILE, FILES, FOLDERS, TEMPORARY, Cache
from serving.storage.sources.local import LocalPath, is_folder, real_folder, real_path

LIMIT: Final = 64 << 30  # bytes of all copies together
LIMIT_VARIABLE: Final = "KNODEL_KEPT_LIMIT"
FOLDER_VARIABLE: Final = "KNODEL_KEPT"
GRACE_PERIOD: Final = 600.0  # s after the last deployment of a copy, in which its Model may not be stored yet
_LONGEST_LIMIT: Final = 18  # digits
_AT_ONCE: Final = 1 << 30  # bytes copied by one call
_BLOCK: Final = 1 << 20  # bytes read at once
_READ_ONLY: Final = 0o400
_TRIES: Final = 3  # attempts to copy files that change meanwhile


def size_limit(environ: Mapping[str, str]) -> int:
    """Return the limit in bytes: KNODEL_KEPT_LIMIT, else LIMIT. Raises StorageError."""
    text = environ.get(LIMIT_VARIABLE) or str(LIMIT)
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_LIMIT):
        raise StorageError(
            f"{LIMIT_VARIABLE}={text[:80]!r} is not a number of bytes: set it to digits alone, such as {LIMIT}"
        )
    return int(text)


def fetch_kept(source: LocalPath, uri: str, digest: str, kept: Path, limit: int) -> Artifact:
    """Return the verified copy with this digest; first copy the file or folder at `source` if there is none.

    With an empty digest, copy the present files. A damaged copy is replaced if `source` still has the same bytes, and
    stays otherwise. Raises StorageError, also when the copy cannot be read.
    """
    if not digest:
        digest = keep(source, uri, "", kept, limit)
    found = _read(source, uri, digest, kept)
    if found is None:
        keep(source, uri, digest, kept, limit, verify=True)
        found = _read(source, uri, digest, kept)
    if found is None:
        raise StorageError(f"{uri}: the copy in {kept} was deleted or changed while it was read: try again")
    return found


def keep(source: LocalPath, uri: str, digest: str, kept: Path, limit: int, *, verify: bool = False) -> str:
    """Copy the file, folder or archive at `source` to the folder `kept`, unless it is there, and return its digest.

    `verify` reads a present copy, and replaces a damaged one. On errors no copy is made. Raises StorageError when
    `source` does not exist, has no files, or has another digest than `digest`. Raises RetryableStorageError when all
    copies would exceed `limit` bytes, when the disk is full, and when the files change during each attempt, because a
    copy must not mix old and new files.
    """
    try:
        for _ in range(_TRIES):
            found = digest_at(source, uri)
            digests.check(uri, digest, found)
            damaged = _find_damaged(source, uri, found, kept) if verify else None
            if damaged is None and _touch(kept, source, found):
                return found
            if _keep_copy(source, uri, found, kept, limit, replace=damaged is not None):
                return found
    except StorageError as error:
        damaged = _find_damaged(source, uri, digest, kept) if verify and digest else None
        if damaged is None:
            raise
        raise _damaged(uri, digest, damaged, error) from error
    raise RetryableStorageError(f"{uri}: was changed while it was copied: try again when no process writes to it")


def _keep_copy(source: LocalPath, uri: str, found: str, kept: Path, limit: int, *, replace: bool) -> bool:
    """Copy the files at `source`; return False, without an entry, if the copy has another digest than `found`."""
    _check_room(uri, total_size(source.path), kept, limit)
    cache = _cache(kept)
    with cache.work_folder("") as work:
        try:
            copy = _copy_to(work, source, uri)
        except OSError as error:
            raise RetryableStorageError(f"{uri}: cannot be copied to {kept} ({error.strerror}): make room") from error
        if copy.digest != found:  # the source was changed since
            return False
        if not replace and is_kept(kept, source, copy.digest):
            return True
        if copy.digest != copy.name:  # an archive: its files take more room
            _check_room(uri, total_size(copy.path), kept, limit)
        cache.add(copy.path, copy.kind, copy.name)
        if copy.digest != copy.name:
            cache.record_unpacked(ARCHIVES, copy.digest, copy.name)
    return True


def digest_at(source: LocalPath, uri: str) -> str:
    """Return the present digest of the file or folder at `source`. Raises StorageError."""
    if is_folder(source.path, uri):
        files = disk.digest_files(real_folder(source, uri), uri)
        if not files:
            raise StorageError(f"{uri}: the folder has no files: name the folder or file of a model")
        return digests.of_folder(files)
    with disk.open_regular(source.path, uri, source.root) as file:
        try:
            return digests.of_open_file(file)
        except OSError as error:
            raise StorageError(f"{uri}: cannot be read ({error.strerror})") from error


def keep_from(other: Path, source: LocalPath, uri: str, digest: str, kept: Path, limit: int) -> None:
    """Copy the copy of `source` with this digest in the folder `other` to the folder `kept`, unless it is there.

    Raises StorageError when `other` has no undamaged copy; RetryableStorageError as `keep`.
    """
    if is_intact(kept, source, uri, digest):
        _touch(kept, source, digest)
        return
    found = _find(other, source, digest)
    if found is None:
        raise StorageError(f"{uri}: {other} has no copy with the digest {digest}: deploy the files there again")
    entry = _name_of(found)
    keep(LocalPath(found), uri, entry, kept, limit, verify=True)
    if entry != digest:  # an archive
        _cache(kept).record_unpacked(ARCHIVES, digest, entry)


def copy_of(kept: Path, source: LocalPath, digest: str) -> Path | None:
    """Return the file or folder of the copy of `source` with this digest; None without one."""
    return _find(kept, source, digest)


def is_kept(kept: Path, source: LocalPath, digest: str) -> bool:
    """Return whether there is a copy of `source` with this digest, without verification."""
    return _find(kept, source, digest) is not None


def is_intact(kept: Path, source: LocalPath, uri: str, digest: str) -> bool:
    """Return whether there is an undamaged copy of `source` with this digest.

    Raises StorageError when the copy cannot be read.
    """
    return is_kept(kept, source, digest) and _find_damaged(source, uri, digest, kept) is None


def delete_unused(kept: Path, used_digests: Collection[str], before: float) -> int:
    """Delete copies that have none of these digests and whose last use was before then (s since 1970).

    Return their number.
    """
    if not kept.is_dir():
        return 0
    cache = _cache(kept)
    needed = {_name(digest) for digest in used_digests}
    unpacked = {entry.name for name in needed for entry in _entries(kept / ARCHIVES / name)}
    unused = [
        entry
        for kind, wanted in ((FILES, needed), (FOLDERS, needed | unpacked), (ARCHIVES, needed))
        for entry in _entries(kept / kind)
        if entry.name not in wanted and _last_used(entry) < before
    ]
    return sum(cache.delete(entry) for entry in unused)


def delete_leftovers(kept: Path) -> None:
    """Delete unfinished copies of processes that have ended. Raises StorageError."""
    if kept.is_dir():
        cache = _cache(kept)
        for entry in _entries(kept / TEMPORARY):
            cache.delete(entry)


class VerificationReport(NamedTuple):
    """The result of a verification: `read` of all `copies` were read, `read_bytes` in all, some `damaged`."""

    copies: int
    read: int
    read_bytes: int
    damaged: list[Path]


def verify_copies(kept: Path, most_bytes: int = sys.maxsize) -> VerificationReport:
    """Read the copies, smallest first and at most `most_bytes` in all, and compare them with their digests.

    An unreadable copy counts as damaged, and so does an archive without its unpacked files. No copy is changed.
    """
    files = [entry / FILE for entry in _entries(kept / FILES)]
    sized = sorted((total_size(copy), copy) for copy in (*files, *_entries(kept / FOLDERS)))
    read = read_bytes = 0
    damaged = []
    for size, copy in sized:
        if read_bytes + size > most_bytes:
            break
        read, read_bytes = read + 1, read_bytes + size
        entry = copy.parent if copy.name == FILE else copy
        if not _has_digest_of_name(copy) and entry.exists():  # else it was deleted meanwhile
            damaged.append(entry)
    damaged += [
        archive
        for archive in _entries(kept / ARCHIVES)
        if not all((kept / FOLDERS / note.name).exists() for note in _entries(archive))
    ]
    return VerificationReport(len(sized), read, read_bytes, damaged)


def used_bytes(kept: Path) -> int:
    """Return the size of all complete copies in bytes."""
    return sum(total_size(kept / kind) for kind in (FILES, FOLDERS, ARCHIVES))


def total_size(path: Path) -> int:
    """Return the size of a file, or of all files below a folder, in bytes, without files deleted meanwhile."""
    total = 0
    with suppress(OSError):
        total = path.stat().st_size if path.is_file() else 0
    for where, _, files in os.walk(path):
        for name in files:
            with suppress(OSError):
                total += (Path(where) / name).stat().st_size
    return total


def _cache(kept: Path) -> Cache:
    return Cache(
        kept,
        sys.maxsize,
        name="the folder of kept model files",
        remedy="make it writable for its owner alone, with room",
    )


class _Copy(NamedTuple):
    """A complete copy. `name` is the digest of its entry, which is that of the unpacked files for an archive."""

    path: Path
    digest: str
    kind: str
    name: str


def _find(kept: Path, source: LocalPath, digest: str) -> Path | None:
    """Return the file or folder of a copy; None if it is absent or incomplete."""
    name = _name(digest)
    if is_archive(source.path.name):
        noted = [entry.name for entry in _entries(kept / ARCHIVES / name)]
        name = noted[0] if len(noted) == 1 else name
    else:
        file = kept / FILES / name / FILE
        with suppress(OSError):
            if file.is_file():
                return file
    folder = kept / FOLDERS / name
    return folder if _entries(folder) else None


def _read(source: LocalPath, uri: str, digest: str, kept: Path) -> Artifact | None:
    """Return the verified copy; None if it is absent or damaged. Raises StorageError if it cannot be read."""
    found, name = _find(kept, source, digest), f"{uri}: its kept copy"
    if found is None:
        return None
    if found.name == FILE:
        content = disk.read_file(found, name)
        if digests.of_bytes(content) != digest:
            return None
        return Artifact(source.path, content, {}, uri, digest=digest)
    real = real_path(found, name)
    files = disk.digest_files(real, name)
    if digests.of_folder(files) != digests.PREFIX + found.name:
        return None
    return Artifact(real, None, files, uri, digest=digest)


def _find_damaged(source: LocalPath, uri: str, digest: str, kept: Path) -> Path | None:
    """Return the copy if it is damaged; None if it is intact or absent. Raises StorageError if it cannot be read."""
    found = _find(kept, source, digest)
    return None if found is None or _digest_of_copy(found, f"{uri}: its kept copy") == _name_of(found) else found


def _digest_of_copy(copy: Path, name: str) -> str:
    """Compute the digest of a copy. Raises StorageError."""
    if copy.name != FILE:
        return digests.of_folder(disk.digest_files(real_path(copy, name), name))
    with disk.open_regular(copy, name) as file:
        try:
            return digests.of_open_file(file)
        except OSError as error:
            raise StorageError(f"{name}: cannot be read ({error.strerror})") from error


def _has_digest_of_name(copy: Path) -> bool:
    try:
        return _digest_of_copy(copy, str(copy)) == _name_of(copy)
    except StorageError:
        return False


def _name_of(copy: Path) -> str:
    """Return the digest of a copy's entry."""
    return digests.PREFIX + (copy.parent.name if copy.name == FILE else copy.name)


def _damaged(uri: str, digest: str, copy: Path, error: StorageError) -> StorageError:
    """Return the error of a damaged copy that cannot be replaced because of `error`."""
    reason = str(error).removeprefix(f"{uri}: ")
    kind = RetryableStorageError if isinstance(error, RetryableStorageError) else StorageError
    return kind(
        f"{uri}: its kept copy {copy} is damaged and cannot be replaced from there: {reason}. Put the files with "
        f"digest {digest} there again, or deploy other files"
    )


def _check_room(uri: str, size: int, kept: Path, limit: int) -> None:
    used = used_bytes(kept)
    if used + size > limit:
        raise RetryableStorageError(
            f"{uri}: has {format_size(size)}, and kept model files use {format_size(used)} of {format_size(limit)}: "
            f"delete models that are not needed and try again after {GRACE_PERIOD // 60 + 1:.0f} minutes, when their "
            f"copies are deleted, or set {LIMIT_VARIABLE} to more bytes and start the platform again"
        )


def _copy_to(work: Path, source: LocalPath, uri: str) -> _Copy:
    target = work / "copy"
    target.mkdir(mode=0o700)
    if is_folder(source.path, uri):
        root = real_folder(source, uri)
        files = {}
        for name in disk.list_files(root, uri):
            with disk.open_regular(root / name, f"{uri}: {name!r}", root) as file:
                (target / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                files[name] = copy_file(file, target / name)
        digest = digests.of_folder(files)
        return _Copy(target, digest, FOLDERS, digest)
    with disk.open_regular(source.path, uri, source.root) as file:
        if not is_archive(source.path.name):
            digest = copy_file(file, target / FILE)
            return _Copy(target, digest, FILES, digest)
        digest = copy_file(file, work / FILE)
    unpacked = digests.of_folder(unpack(work / FILE, source.path.name, target, uri))
    return _Copy(target, digest, FOLDERS, unpacked)


def copy_file(source: FileIO, target: Path) -> str:
    """Copy a file, sharing its blocks where the file system can, and return the digest of the copy. Raises OSError."""
    with target.open("x+b", buffering=0) as file:
        with suppress(OSError):  # unsupported between these file systems; the code below copies the rest
            while os.copy_file_range(source.fileno(), file.fileno(), _AT_ONCE):
                pass
        with open(file.fileno(), "wb", closefd=False) as buffered:  # FileIO may write only a part
            shutil.copyfileobj(source, buffered, _BLOCK)
        file.seek(0)
        digest = digests.of_open_file(file)
    target.chmod(_READ_ONLY)
    return digest


def _touch(kept: Path, source: LocalPath, digest: str) -> bool:
    """Record the use of a copy; return False if it is absent."""
    found = _find(kept, source, digest)
    if found is None:
        return False
    for entry in (found.parent if found.name == FILE else found, kept / ARCHIVES / _name(digest)):
        with suppress(OSError):
            os.utime(entry)
    return True


def _name(digest: str) -> str:
    return digest.removeprefix(digests.PREFIX)


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError):
        return list(folder.iterdir())
    return []


def _last_used(entry: Path) -> float:
    with suppress(OSError):
        return entry.stat().st_mtime
    return 0.0
