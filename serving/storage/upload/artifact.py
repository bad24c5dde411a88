"""Read the local files of an artifact for an upload: one file, an archive, or a folder. Nothing is sent here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from clusters.base.sizes import format_size
from serving.storage.base import digest as digests
from serving.storage.base import disk
from serving.storage.base.disk import LARGEST_FILE
from serving.storage.base.errors import StorageError
from serving.storage.sources.local import is_folder, real_path
from serving.storage.transfer.parallel import run_all
from serving.storage.upload.content import Blob, FileContent, hash_content

Report = Callable[[int, int], None]
"""Called with the bytes that are done and their total, by one thread at a time."""
READ_AT_ONCE: Final = 4  # files; hashing needs a core each


@dataclass(frozen=True, slots=True)
class LocalArtifact:
    """Files with their digests. `digest` is the one that replicas compute (`serving.storage.base.digest`).

    `folder` is False for a single file, also for an archive. `name` denotes the artifact in messages.
    """

    name: str
    files: tuple[Blob, ...]
    folder: bool
    digest: str

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(file.size for file in self.files)

    def listing(self) -> bytes:
        """Return the lines of a folder that are hashed for its digest: `<sha256>  <path>`, as `sha256sum` prints them.

        The SHA-256 of the listing is the digest of the folder.
        """
        return digests.folder_listing({file.path: file.digest for file in self.files})


class Counter:
    """Add up byte counts of several threads, and report each sum. Thread-safe."""

    def __init__(self, report: Report, total: int) -> None:
        self._report = report
        self._total = total
        self._lock = threading.Lock()
        self.count = 0

    def add(self, size: int) -> None:
        """Add bytes; a negative size takes back bytes that must be sent again."""
        with self._lock:
            self.count += size
            self._report(self.count, self._total)


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files of an artifact by their relative paths (POSIX, sorted), not read yet. `folder` as in LocalArtifact."""

    name: str
    contents: Mapping[str, FileContent]
    folder: bool

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(content.size for content in self.contents.values())

    def name_of(self, path: str) -> str:
        """Return the name of a file in messages."""
        return f"{self.name}: {path!r}" if self.folder else self.name


def find_files(path: Path, file_name: str = "") -> LocalFiles:
    """Return the file or folder at `path`; a single file as `file_name`, by default its own name.

    Raises StorageError for a missing path, an empty folder, links that leave the folder, more than `disk.MOST_FILES`
    files, and more than LARGEST_FILE bytes in all, which no replica loads.
    """
    name = str(path)
    if not is_folder(path, name):
        return _bounded(LocalFiles(name, {file_name or path.name: FileContent(path, name)}, folder=False))
    root = real_path(path, name)
    found = disk.list_files(root, name)
    if not found:
        raise StorageError(f"{name}: the folder has no files: name the folder or file of a model")
    for one in found:
        if not one.isprintable():  # also for names that are not UTF-8
            raise StorageError(f"{name}: the file name {one!r} has characters that stores do not accept: rename it")
    contents = {one: FileContent(root / one, f"{name}: {one!r}", root) for one in found}
    return _bounded(LocalFiles(name, contents, folder=True))


def hash_files(files: LocalFiles, report: Report) -> LocalArtifact:
    """Read the files, and return them with their digests. Raises StorageError."""
    counter = Counter(report, files.size)
    tasks = [
        partial(hash_content, path, files.name_of(path), content, counter.add)
        for path, content in files.contents.items()
    ]
    blobs: Sequence[Blob] = run_all(tasks, READ_AT_ONCE, lambda: None)
    digest = digests.of_folder({blob.path: blob.digest for blob in blobs}) if files.folder else blobs[0].digest
    return LocalArtifact(files.name, tuple(blobs), files.folder, digest)


def _bounded(files: LocalFiles) -> LocalFiles:
    if files.size > LARGEST_FILE:
        limit = f"{format_size(LARGEST_FILE)} is the limit of one replica"
        raise StorageError(f"{files.name}: has {format_size(files.size)}, and {limit}")
    return files
