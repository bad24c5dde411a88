"""Fetch an artifact from a source through the cache: look it up, download, verify, unpack, add to the cache."""

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
from serving.storage.sources.source import DownloadedFile, DownloadedFolder, Source, new_folder
from serving.storage.transfer.limits import TransferDeadline
from serving.storage.transfer.progress import Progress

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ArtifactRequest:
    """An artifact to fetch. `name` is the URI in messages; `digest` is the expected one, or "" for any."""

    source: Source
    uri: str
    name: str
    digest: str
    deadline: TransferDeadline

    @property
    def key(self) -> str:
        """The key for resumption; "" without a digest, since parts of a crashed download could not be verified."""
        return hashlib.sha256(f"{self.digest} {self.uri}".encode()).hexdigest() if self.digest else ""


def fetch_remote(request: ArtifactRequest, folder: Path, limit: int, progress: Progress) -> Artifact:
    """Return the artifact from the cache in `folder` (at most `limit` bytes), else download it. Raises StorageError.

    The cache is used only for a request with a digest, and after verification.
    """
    cache = Cache(folder, limit)
    found = _find_cached(request, cache)
    if found is not None:
        return found
    with cache.work_folder(request.key, request.deadline) as work:
        found = _find_cached(request, cache)  # another process may have downloaded it during the wait
        return found or _download(request, cache, work, progress)


def _find_cached(request: ArtifactRequest, cache: Cache) -> Artifact | None:
    if not request.digest:
        return None
    filename = request.source.filename
    if request.source.is_image or is_archive(filename):
        folder = cache.unpacked_digest(_kind(request), request.digest)
        return _find_folder(request, cache, folder) if folder else None
    return (_find_file(request, cache) if filename else None) or _find_folder(request, cache, request.digest)


def _find_file(request: ArtifactRequest, cache: Cache) -> Artifact | None:
    locked = cache.find(FILES, request.digest)
    if locked is None or not (locked.path / FILE).is_file():
        return None
    try:
        return _read_file(request, locked.path / FILE, request.digest)
    except StorageError as error:
        log.warning("downloading again, because the cached copy is damaged: %s", error)
        locked.release()
        cache.delete(locked.path)
    return None


def _find_folder(request: ArtifactRequest, cache: Cache, digest: str) -> Artifact | None:
    locked = cache.find(FOLDERS, digest)
    if locked is None:
        return None
    try:
        files = disk.digest_files(locked.path, request.name)
        digests.check(request.name, digest, digests.of_folder(files))
    except StorageError as error:
        log.warning("downloading again, because the cached copy is damaged: %s", error)
        locked.release()
        cache.delete(locked.path)
        return None
    return Artifact(locked.path, None, files, request.name, locked, request.digest)


def _download(request: ArtifactRequest, cache: Cache, work: Path, progress: Progress) -> Artifact:
    """Download, verify and unpack the artifact in `work`, and add it to the cache."""
    filename = request.source.filename
    try:
        downloaded = request.source.download(work, progress)
        digests.check(request.name, request.digest, downloaded.digest)
        if isinstance(downloaded, DownloadedFile) and is_archive(filename):
            folder = new_folder(work)
            files = unpack(downloaded.path, filename, folder, request.name)
            downloaded = DownloadedFolder(folder, files, downloaded.digest)
    except OSError as error:
        raise StorageError(f"{request.name}: the cache cannot be written ({error.strerror}): make room") from error
    if isinstance(downloaded, DownloadedFile):
        path = new_folder(work) / FILE
        downloaded.path.rename(path)
        artifact = _read_file(request, path, downloaded.digest)
        cache.add(path.parent, FILES, downloaded.digest)
        return artifact
    digest = digests.of_folder(downloaded.digests)
    locked = cache.add(downloaded.path, FOLDERS, digest)
    if digest != downloaded.digest:
        cache.record_unpacked(_kind(request), downloaded.digest, digest)
    return Artifact(locked.path, None, downloaded.digests, request.name, locked, downloaded.digest)


def _read_file(request: ArtifactRequest, path: Path, digest: str) -> Artifact:
    content = disk.read_file(path, request.name)
    digests.check(request.name, digest, digests.of_bytes(content))
    return Artifact(Path(request.source.filename), content, {}, request.name, digest=digest)


def _kind(request: ArtifactRequest) -> str:
    return IMAGES if request.source.is_image else ARCHIVES
