"""From a source to an artifact, by way of the cache: looked for, brought, verified, unpacked, kept."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

from serving.storage.archives.archive import is_archive, unpack
from serving.storage.base import digest as digests
from serving.storage.base import disk
from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import StorageError
from serving.storage.cache import ARCHIVES, FILE, FILES, FOLDERS, IMAGES, Cache
from serving.storage.sources.source import File, Folder, Source, new_folder
from serving.storage.transfer.deadline import Deadline
from serving.storage.transfer.progress import Progress

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be had: `name` is the URI as it is shown, `digest` "" when none is promised; until when."""

    source: Source
    uri: str
    name: str
    digest: str
    deadline: Deadline

    @property
    def key(self) -> str:
        """The name of the download; "" when it cannot be continued: nothing would tell what a crash made of it."""
        return hashlib.sha256(f"{self.digest} {self.uri}".encode()).hexdigest() if self.digest else ""


def fetch_remote(want: Wanted, folder: Path, limit: int, progress: Progress) -> Artifact:
    """From the cache (`folder`, at most `limit` bytes) when its digest is known and intact there, else from the source.

    Raises StorageError.
    """
    cache = Cache(folder, limit)
    found = _cached(want, cache)
    if found is not None:
        return found
    with cache.workplace(want.key, want.deadline) as work:
        found = _cached(want, cache)  # by whoever was in the workplace before
        return found or _brought(want, cache, work, progress)


def _cached(want: Wanted, cache: Cache) -> Artifact | None:
    if not want.digest:
        return None
    filename = want.source.filename
    if want.source.is_image or is_archive(filename):
        folder = cache.unpacked(_kind(want), want.digest)
        return _cached_folder(want, cache, folder) if folder else None
    return (_cached_file(want, cache) if filename else None) or _cached_folder(want, cache, want.digest)


def _cached_file(want: Wanted, cache: Cache) -> Artifact | None:
    held = cache.find(FILES, want.digest)
    if held is None or not (held.path / FILE).is_file():
        return None
    try:
        return _read(want, held.path / FILE, want.digest)
    except StorageError as error:  # that it is there says nothing
        log.warning("downloading anew what the cache has: %s", error)
        held.release()
        cache.drop(held.path)
    return None


def _cached_folder(want: Wanted, cache: Cache, digest: str) -> Artifact | None:
    held = cache.find(FOLDERS, digest)
    if held is None:
        return None
    try:
        files = disk.digest_files(held.path, want.name)
        digests.check(want.name, digest, digests.of_folder(files))
    except StorageError as error:
        log.warning("downloading anew what the cache has: %s", error)
        held.release()
        cache.drop(held.path)
        return None
    return Artifact(held.path, None, files, want.name, held, want.digest)


def _brought(want: Wanted, cache: Cache, work: Path, progress: Progress) -> Artifact:
    try:
        brought = want.source.bring(work, progress)
        digests.check(want.name, want.digest, brought.digest)
        if isinstance(brought, File) and is_archive(want.source.filename):
            brought = _unpacked(want, brought, work)
    except OSError as error:
        raise StorageError(f"{want.name}: the cache cannot be written ({error.strerror}): make room") from error
    return _kept_file(want, cache, work, brought) if isinstance(brought, File) else _kept_folder(want, cache, brought)


def _unpacked(want: Wanted, archive: File, work: Path) -> Folder:
    folder = new_folder(work)
    return Folder(folder, unpack(archive.path, want.source.filename, folder, want.name), archive.digest)


def _kept_file(want: Wanted, cache: Cache, work: Path, brought: File) -> Artifact:
    path = new_folder(work) / FILE
    brought.path.rename(path)
    artifact = _read(want, path, brought.digest)
    cache.keep(path.parent, FILES, brought.digest)
    return artifact


def _kept_folder(want: Wanted, cache: Cache, brought: Folder) -> Artifact:
    digest = digests.of_folder(brought.digests)
    held = cache.keep(brought.path, FOLDERS, digest)
    if digest != brought.digest:
        cache.note_unpacked(_kind(want), brought.digest, digest)
    return Artifact(held.path, None, brought.digests, want.name, held, brought.digest)


def _read(want: Wanted, path: Path, digest: str) -> Artifact:
    content = disk.read_file(path, want.name)
    digests.check(want.name, digest, digests.of_bytes(content))
    return Artifact(Path(want.source.filename), content, {}, want.name, digest=digest)


def _kind(want: Wanted) -> str:
    return IMAGES if want.source.is_image else ARCHIVES
