"""Read the local files of an artifact for an upload: one file, an archive, or a folder. Nothing is sent here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
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


def read_artifact(path: Path, report: Report) -> LocalArtifact:
    """Return the file or folder at `path` with all digests.

    Raises StorageError for a missing path, an empty folder, links that leave the folder, more than `disk.MOST_FILES`
    files, and more than LARGEST_FILE bytes in all, which no replica loads.
    """
    name = str(path)
    if not is_folder(path, name):
        return _read(name, {path.name: FileContent(path, name)}, report, folder=False)
    root = real_path(path, name)
    found = disk.list_files(root, name)
    if not found:
        raise StorageError(f"{name}: the folder has no files: name the folder or file of a model")
    for one in found:
        if not one.isprintable():  # also for names that are not UTF-8
            raise StorageError(f"{name}: the file name {one!r} has characters that stores do not accept: rename it")
    contents = {one: FileContent(root / one, f"{name}: {one!r}", root) for one in found}
    return _read(name, contents, report, folder=True)


def _read(name: str, contents: dict[str, FileContent], report: Report, *, folder: bool) -> LocalArtifact:
    total = sum(content.size for content in contents.values())
    if total > LARGEST_FILE:
        raise StorageError(
            f"{name}: has {format_size(total)}, and {format_size(LARGEST_FILE)} is the limit of one replica"
        )
    counter = Counter(report, total)
    tasks = [
        partial(hash_content, path, f"{name}: {path!r}" if folder else name, content, counter.add)
        for path, content in contents.items()
    ]
    files: Sequence[Blob] = run_all(tasks, READ_AT_ONCE, lambda: None)
    digest = digests.of_folder({file.path: file.digest for file in files}) if folder else files[0].digest
    return LocalArtifact(name, tuple(files), folder, digest)
