"""Many files of one source, downloaded into one folder, several at once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from clusters.base.sizes import format_size
from serving.storage.archives.tree import Tree, TreeLimits, plain_name
from serving.storage.base.errors import StorageError
from serving.storage.sources.source import PARTS, new_folder
from serving.storage.transfer.http import Download, Downloader
from serving.storage.transfer.progress import FolderProgress, Progress
from serving.storage.transfer.web import Request


@dataclass(frozen=True, slots=True)
class Remote:
    """One of many files: its path in the folder, how it is asked for, its bytes and digest where they are known."""

    name: str
    request: Callable[[], Request]  # for each connection: tokens and signed addresses end
    size: int | None = None
    digest: str = ""


def bring_files(
    files: Sequence[Remote], work: Path, downloader: Downloader, uri: str, progress: Progress,
    limits: TreeLimits | None = None,
) -> dict[str, str]:  # fmt: skip
    """Bring all files into `work / FOLDER`; relative path → digest. Raises StorageError.

    Names, number and announced size are checked before the first byte is asked for, and what comes while it does.
    """
    names = [plain_name(file.name, uri) for file in files]
    if not all(names):
        raise StorageError(f"{uri}: has a file without a name")
    if twice := next((name for name, count in Counter(names).items() if count > 1), ""):
        raise StorageError(f"{uri}: has {twice!r} twice")
    limits = limits or TreeLimits()
    progress_of_all = FolderProgress(progress, _total(files, limits, uri), limits.size, uri)
    wanted = [
        Download(
            f"{uri}: {file.name!r}", partial(_named, file, uri),
            work / PARTS / hashlib.sha256(file.name.encode()).hexdigest(), file.size, limits.size, file.digest,
        )
        for file in files
    ]  # fmt: skip
    found = downloader.save_all(wanted, progress_of_all)
    tree = Tree(new_folder(work), uri, limits)
    for name, download, digest in zip(names, wanted, found, strict=True):
        tree.move_in(name, download.path, digest)
    return tree.digests


def _named(file: Remote, uri: str) -> Request:
    """Return the file's request, whose errors name the file."""
    return replace(file.request(), name=f"{uri}: {file.name!r}")


def _total(files: Sequence[Remote], limits: TreeLimits, uri: str) -> int | None:
    if not files:
        raise StorageError(f"{uri}: nothing is there: check the address")
    if len(files) > limits.files:
        raise StorageError(f"{uri}: has more than {limits.files} files: name the model's own folder or file")
    sizes = [max(file.size, 0) for file in files if file.size is not None]
    if sum(sizes) > limits.size:
        raise StorageError(f"{uri}: has {format_size(sum(sizes))}, and {format_size(limits.size)} is the limit")
    return sum(sizes) if len(sizes) == len(files) else None
