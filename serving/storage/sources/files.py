"""Many files of one source, brought one after the other into one folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusters.base.sizes import format_size
from serving.storage.archives.tree import Tree, TreeLimits, plain_name
from serving.storage.base import digest as digests
from serving.storage.base.errors import StorageError
from serving.storage.sources.source import PARTS, new_folder
from serving.storage.transfer.http import Download, Downloader
from serving.storage.transfer.progress import Progress, Whole
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
    limits = limits or TreeLimits()
    total = _total(files, limits, uri)
    whole = Whole(progress, total)
    parts = []
    left = limits.size
    for file in files:
        part = work / PARTS / hashlib.sha256(file.name.encode()).hexdigest()
        found = downloader.save(Download(f"{uri}: {file.name!r}", file.request, part, file.size, left), whole.file)
        left -= part.stat().st_size
        if file.digest:
            digests.check(f"{uri}: {file.name!r}", file.digest, found)
        parts.append((part, found))
        whole.next()
    tree = Tree(new_folder(work), uri, limits)
    for name, (part, found) in zip(names, parts, strict=True):
        tree.move_in(name, part, found)
    return tree.digests


def _total(files: Sequence[Remote], limits: TreeLimits, uri: str) -> int | None:
    if not files:
        raise StorageError(f"{uri}: nothing is there: check the address")
    if len(files) > limits.files:
        raise StorageError(f"{uri}: has more than {limits.files} files: name the model's own folder or file")
    sizes = [max(file.size, 0) for file in files if file.size is not None]
    if sum(sizes) > limits.size:
        raise StorageError(f"{uri}: has {format_size(sum(sizes))}, and {format_size(limits.size)} is the limit")
    return sum(sizes) if len(sizes) == len(files) else None
