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
from typing import Final, NamedTuple

from clusters.base.sizes import format_size
from serving.storage.archives.archive import is_archive, unpack
from serving.storage.base import digest as digests
from serving.storage.base import disk
from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import Later, StorageError
from serving.storage.cache import ARCHIVES, FILE, FILES, FOLDERS, TEMPORARY, Cache
from serving.storage.sources.local import Place, is_folder, real_folder, real_path

LIMIT: Final = 64 << 30  # bytes of all copies together
LIMIT_VARIABLE: Final = "KNODEL_KEPT_LIMIT"
FOLDER_VARIABLE: Final = "KNODEL_KEPT"
GRACE: Final = 600.0  # s since a copy was made or deployed last: its Model may not be stored yet
_LONGEST_LIMIT: Final = 18  # digits: more bytes than any disk has
_AT_ONCE: Final = 1 << 30  # bytes that one call copies
_BLOCK: Final = 1 << 20  # bytes that are read at once
_READ_ONLY: Final = 0o400
_TRIES: Final = 3  # copies that are made of files which change meanwhile


def limit_of(environ: Mapping[str, str]) -> int:
    """Return the limit in bytes: KNODEL_KEPT_LIMIT, else LIMIT. Raises StorageError."""
    text = environ.get(LIMIT_VARIABLE) or str(LIMIT)
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_LIMIT):
        raise StorageError(
            f"{LIMIT_VARIABLE}={text[:80]!r} is not a number of bytes: set it to digits alone, such as {LIMIT}"
        )
    return int(text)


def fetch_kept(place: Place, uri: str, digest: str, kept: Path, limit: int) -> Artifact:
    """Return the verified copy with this digest; copy the file or folder at `place` first when there is none.

    With an empty digest it is always a copy of what is there now. A damaged copy is replaced when `place` still has
    the same bytes, and stays otherwise. Raises StorageError, also when the copy cannot be read.
    """
    if not digest:
        digest = keep(place, uri, "", kept, limit)
    found = _read(place, uri, digest, kept)
    if found is None:
        keep(place, uri, digest, kept, limit, verify=True)
        found = _read(place, uri, digest, kept)
    if found is None:
        raise StorageError(f"{uri}: the copy in {kept} was deleted or changed while it was read: try again")
    return found


def keep(place: Place, uri: str, digest: str, kept: Path, limit: int, *, verify: bool = False) -> str:
    """Copy the file, folder or archive at `place` into `kept`, unless it is there, and return its digest.

    With `verify` a copy that is there is read, and replaced when it is damaged. Raises StorageError, and leaves
    nothing: nothing is at `place`, it has no files, its digest or that of the copy is not `digest`. Raises Later when
    all copies would exceed `limit` bytes, when the disk is full, and when the files change at each try: a copy that
    mixes old and new files is never kept.
    """
    try:
        for _ in range(_TRIES):
            found = digest_at(place, uri)
            digests.check(uri, digest, found)
            damaged = _find_damaged(place, uri, found, kept) if verify else None
            if damaged is None and _touch(kept, place, found):
                return found
            if _keep_copy(place, uri, found, kept, limit, replace=damaged is not None):
                return found
    except StorageError as error:
        damaged = _find_damaged(place, uri, digest, kept) if verify and digest else None
        if damaged is None:
            raise
        raise _damaged(uri, digest, damaged, error) from error
    raise Later(f"{uri}: changes while it is copied: try again when nothing writes to it")


def _keep_copy(place: Place, uri: str, found: str, kept: Path, limit: int, *, replace: bool) -> bool:
    """Copy what is at `place`; return False, and keep nothing, when the copy has another digest than `found`."""
    _check_room(uri, size_of(place.path), kept, limit)
    cache = _cache(kept)
    with cache.workplace("") as work:
        try:
            copy = _copy_to(work, place, uri)
        except OSError as error:
            raise Later(f"{uri}: cannot be copied to {kept} ({error.strerror}): make room") from error
        if copy.digest != found:  # the source has changed since it was hashed
            return False
        if not replace and is_kept(kept, place, copy.digest):
            return True
        if copy.digest != copy.name:  # an archive: its files take more room than it
            _check_room(uri, size_of(copy.path), kept, limit)
        cache.keep(copy.path, copy.kind, copy.name)
        if copy.digest != copy.name:
            cache.note_unpacked(ARCHIVES, copy.digest, copy.name)
    return True


def digest_at(place: Place, uri: str) -> str:
    """Return the digest of the file or folder at `place` as it is now. Raises StorageError."""
    if is_folder(place.path, uri):
        files = disk.digest_files(real_folder(place, uri), uri)
        if not files:
            raise StorageError(f"{uri}: the folder has no files: name the folder or file of a model")
        return digests.of_folder(files)
    with disk.open_regular(place.path, uri, place.root) as file:
        try:
            return digests.of_open_file(file)
        except OSError as error:
            raise StorageError(f"{uri}: cannot be read ({error.strerror})") from error


def is_kept(kept: Path, place: Place, digest: str) -> bool:
    """Whether there is a copy of what was at `place` with this digest; its bytes are not verified."""
    return _find(kept, place, digest) is not None


def is_intact(kept: Path, place: Place, uri: str, digest: str) -> bool:
    """Whether there is a copy of what was at `place` with this digest, whose bytes give the digest now.

    Raises StorageError when the copy cannot be read.
    """
    return is_kept(kept, place, digest) and _find_damaged(place, uri, digest, kept) is None


def collect(kept: Path, living: Collection[str], before: float) -> int:
    """Delete copies that were used last before then (s since 1970) and whose digests are not `living`; count them."""
    if not kept.is_dir():
        return 0
    cache = _cache(kept)
    needed = {_name(digest) for digest in living}
    unpacked = {entry.name for name in needed for entry in _entries(kept / ARCHIVES / name)}
    doomed = [
        entry
        for kind, wanted in ((FILES, needed), (FOLDERS, needed | unpacked), (ARCHIVES, needed))
        for entry in _entries(kept / kind)
        if entry.name not in wanted and _used_at(entry) < before
    ]
    return sum(cache.drop(entry) for entry in doomed)


def delete_leftovers(kept: Path) -> None:
    """Delete unfinished copies of processes that have ended. Raises StorageError."""
    if kept.is_dir():
        cache = _cache(kept)
        for entry in _entries(kept / TEMPORARY):
            cache.drop(entry)


class Audit(NamedTuple):
    """The result of reading copies: `read` of `copies`, `read_bytes` together, and the `damaged` ones."""

    copies: int
    read: int
    read_bytes: int
    damaged: list[Path]


def audit(kept: Path, most_bytes: int = sys.maxsize) -> Audit:
    """Read the copies, the smallest first and at most `most_bytes` together, and compare them with their digests.

    A copy that cannot be read counts as damaged, and so does an archive whose files are gone. Nothing is changed.
    """
    files = [entry / FILE for entry in _entries(kept / FILES)]
    sized = sorted((size_of(copy), copy) for copy in (*files, *_entries(kept / FOLDERS)))
    read = read_bytes = 0
    damaged = []
    for size, copy in sized:
        if read_bytes + size > most_bytes:
            break
        read, read_bytes = read + 1, read_bytes + size
        entry = copy.parent if copy.name == FILE else copy
        if not _is_what_its_name_says(copy) and entry.exists():  # else it was deleted meanwhile
            damaged.append(entry)
    damaged += [
        archive
        for archive in _entries(kept / ARCHIVES)
        if not all((kept / FOLDERS / note.name).exists() for note in _entries(archive))
    ]
    return Audit(len(sized), read, read_bytes, damaged)


def room_used(kept: Path) -> int:
    """Return the bytes of all finished copies."""
    return sum(size_of(kept / kind) for kind in (FILES, FOLDERS, ARCHIVES))


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


def _cache(kept: Path) -> Cache:
    return Cache(
        kept,
        sys.maxsize,
        name="the folder of kept model files",
        remedy="make it writable for its owner alone, with room",
    )


class _Copy(NamedTuple):
    """A finished copy; `name` is the digest under which it is kept, of an archive that of its files."""

    path: Path
    digest: str
    kind: str
    name: str


def _find(kept: Path, place: Place, digest: str) -> Path | None:
    """Return the file or folder that is the copy; None when there is none, or only a part of one."""
    name = _name(digest)
    if is_archive(place.path.name):
        noted = [entry.name for entry in _entries(kept / ARCHIVES / name)]
        name = noted[0] if len(noted) == 1 else name
    else:
        file = kept / FILES / name / FILE
        with suppress(OSError):
            if file.is_file():
                return file
    folder = kept / FOLDERS / name
    return folder if _entries(folder) else None


def _read(place: Place, uri: str, digest: str, kept: Path) -> Artifact | None:
    """Return the verified copy; None when there is none or it is damaged. Raises StorageError: it cannot be read."""
    found, name = _find(kept, place, digest), f"{uri}: its kept copy"
    if found is None:
        return None
    if found.name == FILE:
        content = disk.read_file(found, name)
        if digests.of_bytes(content) != digest:
            return None
        return Artifact(place.path, content, {}, uri, digest=digest)
    real = real_path(found, name)
    files = disk.digest_files(real, name)
    if digests.of_folder(files) != digests.PREFIX + found.name:
        return None
    return Artifact(real, None, files, uri, digest=digest)


def _find_damaged(place: Place, uri: str, digest: str, kept: Path) -> Path | None:
    """Return the copy when its bytes give another digest; None without one. Raises StorageError: it cannot be read."""
    found = _find(kept, place, digest)
    return None if found is None or _digest_of_copy(found, f"{uri}: its kept copy") == _name_of(found) else found


def _digest_of_copy(copy: Path, name: str) -> str:
    """Return the digest of a copy's bytes as they are now. Raises StorageError."""
    if copy.name != FILE:
        return digests.of_folder(disk.digest_files(real_path(copy, name), name))
    with disk.open_regular(copy, name) as file:
        try:
            return digests.of_open_file(file)
        except OSError as error:
            raise StorageError(f"{name}: cannot be read ({error.strerror})") from error


def _is_what_its_name_says(copy: Path) -> bool:
    try:
        return _digest_of_copy(copy, str(copy)) == _name_of(copy)
    except StorageError:
        return False


def _name_of(copy: Path) -> str:
    """Return the digest under which a copy is kept."""
    return digests.PREFIX + (copy.parent.name if copy.name == FILE else copy.name)


def _damaged(uri: str, digest: str, copy: Path, error: StorageError) -> StorageError:
    """Return the error of a damaged copy that the source cannot replace, because of `error`."""
    reason = str(error).removeprefix(f"{uri}: ")
    kind = Later if isinstance(error, Later) else StorageError
    return kind(
        f"{uri}: its kept copy {copy} is damaged and cannot be replaced from there: {reason}. Put the files with "
        f"digest {digest} there again, or deploy other files"
    )


def _check_room(uri: str, size: int, kept: Path, limit: int) -> None:
    used = room_used(kept)
    if used + size > limit:
        raise Later(
            f"{uri}: has {format_size(size)}, and kept model files have {format_size(used)} of {format_size(limit)} "
            f"already: delete models that are not needed and try again after {GRACE // 60 + 1:.0f} minutes, when their "
            f"copies are gone, or set {LIMIT_VARIABLE} to more bytes and start the platform again"
        )


def _copy_to(work: Path, place: Place, uri: str) -> _Copy:
    target = work / "copy"
    target.mkdir(mode=0o700)
    if is_folder(place.path, uri):
        root = real_folder(place, uri)
        files = {}
        for name in disk.list_files(root, uri):
            with disk.open_regular(root / name, f"{uri}: {name!r}", root) as source:
                (target / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                files[name] = copy_file(source, target / name)
        digest = digests.of_folder(files)
        return _Copy(target, digest, FOLDERS, digest)
    with disk.open_regular(place.path, uri, place.root) as source:
        if not is_archive(place.path.name):
            digest = copy_file(source, target / FILE)
            return _Copy(target, digest, FILES, digest)
        digest = copy_file(source, work / FILE)
    unpacked = digests.of_folder(unpack(work / FILE, place.path.name, target, uri))
    return _Copy(target, digest, FOLDERS, unpacked)


def copy_file(source: FileIO, target: Path) -> str:
    """Copy a file, sharing its blocks where the file system can, and return the digest of the copy. Raises OSError."""
    with target.open("x+b", buffering=0) as file:
        with suppress(OSError):  # not between these file systems: what is left is copied below, with all errors
            while os.copy_file_range(source.fileno(), file.fileno(), _AT_ONCE):
                pass
        with open(file.fileno(), "wb", closefd=False) as buffered:  # writes all bytes, unlike FileIO
            shutil.copyfileobj(source, buffered, _BLOCK)
        file.seek(0)
        digest = digests.of_open_file(file)
    target.chmod(_READ_ONLY)
    return digest


def _touch(kept: Path, place: Place, digest: str) -> bool:
    """Note that a copy is used now; False when there is none."""
    found = _find(kept, place, digest)
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


def _used_at(entry: Path) -> float:
    with suppress(OSError):
        return entry.stat().st_mtime
    return 0.0
