"""Download many files of one source into one folder, several at once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from clusters.base.sizes import format_size
from serving.storage.archives.folder_writer import FolderLimits, FolderWriter, safe_relative_path
from serving.storage.base.errors import StorageError
from serving.storage.sources.source import PARTS, new_folder
from serving.storage.transfer.client import StoreRequest
from serving.storage.transfer.downloader import Download, Downloader
from serving.storage.transfer.progress import FolderProgress, Progress


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a folder: its relative path, and its size in bytes and digest if they are known.

    `request` makes the request for each attempt, since tokens and signed URLs expire.
    """

    name: str
    request: Callable[[], StoreRequest]
    size: int | None = None
    digest: str = ""


def download_files(
    files: Sequence[RemoteFile], work: Path, downloader: Downloader, uri: str, progress: Progress,
    limits: FolderLimits | None = None,
) -> dict[str, str]:  # fmt: skip
    """Download all files into `work / FOLDER` and return their digests by relative path. Raises StorageError.

    Names, number and listed sizes are checked before the first request, and the received bytes during the download.
    """
    names = [safe_relative_path(file.name, uri) for file in files]
    if not all(names):
        raise StorageError(f"{uri}: has a file without a name")
    if twice := next((name for name, count in Counter(names).items() if count > 1), ""):
        raise StorageError(f"{uri}: has {twice!r} twice")
    limits = limits or FolderLimits()
    progress_of_all = FolderProgress(progress, _total_size(files, limits, uri), limits.size, uri)
    wanted = [
        Download(
            f"{uri}: {file.name!r}", partial(_named_request, file, uri),
            work / PARTS / hashlib.sha256(file.name.encode()).hexdigest(), file.size, limits.size, file.digest,
        )
        for file in files
    ]  # fmt: skip
    found = downloader.save_all(wanted, progress_of_all)
    writer = FolderWriter(new_folder(work), uri, limits)
    for name, download, digest in zip(names, wanted, found, strict=True):
        writer.add_file(name, download.path, digest)
    return writer.digests


def _named_request(file: RemoteFile, uri: str) -> StoreRequest:
    """Return the file's request with the file's name for its errors."""
    return replace(file.request(), name=f"{uri}: {file.name!r}")


def _total_size(files: Sequence[RemoteFile], limits: FolderLimits, uri: str) -> int | None:
    """Return the size of all files in bytes; None if one is unknown. Raises StorageError for none or too many."""
    if not files:
        raise StorageError(f"{uri}: has no files: check the address")
    if len(files) > limits.files:
        raise StorageError(f"{uri}: has more than {limits.files} files: name the model's own folder or file")
    sizes = [max(file.size, 0) for file in files if file.size is not None]
    if sum(sizes) > limits.size:
        raise StorageError(f"{uri}: has {format_size(sum(sizes))}, and {format_size(limits.size)} is the limit")
    return sum(sizes) if len(sizes) == len(files) else None
