"""Sources of a single file or archive: `http://` and `https://` without credentials, and an archive on this machine."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote

from clusters.base.redact import redact_url
from serving.storage.base import disk
from serving.storage.base.digest import PREFIX
from serving.storage.sources.local import LocalPath
from serving.storage.sources.source import PARTS, DownloadedFile, SourceContext
from serving.storage.transfer.client import StoreRequest
from serving.storage.transfer.downloader import Download
from serving.storage.transfer.progress import Progress
from serving.storage.transfer.urls import parse_url

UNNAMED: Final = "model"  # name of a file whose URI has none
_CHUNK: Final = 1 << 18  # bytes copied at once


class HttpFileSource:
    """The file at a URL."""

    is_image: Final = False

    def __init__(self, uri: str, context: SourceContext) -> None:
        self._uri = uri
        self._context = context
        self.filename = plain_filename(unquote(parse_url(uri).request_target.partition("?")[0]))

    def download(self, work: Path, progress: Progress) -> DownloadedFile:
        """Download the file. Raises StorageError."""
        name = redact_url(self._uri)
        path = work / PARTS / "0"
        wanted = Download(name, lambda: StoreRequest(self._uri, name), path)
        return DownloadedFile(path, self._context.downloader.save(wanted, progress))


class LocalArchiveSource:
    """An archive on this machine, which is copied before it is unpacked; `uri` denotes it in messages."""

    is_image: Final = False

    def __init__(self, archive: LocalPath, uri: str) -> None:
        self._archive = archive
        self._uri = uri
        self.filename = archive.path.name

    def download(self, work: Path, progress: Progress) -> DownloadedFile:
        """Copy the archive and compute the digest of the copy. Raises StorageError, OSError."""
        copy = work / PARTS / "0"
        copy.parent.mkdir(mode=0o700, exist_ok=True)
        found, size = hashlib.sha256(), 0
        with disk.open_regular(self._archive.path, self._uri, self._archive.root) as file, copy.open("wb") as target:
            total = os.fstat(file.fileno()).st_size
            while chunk := file.read(_CHUNK):
                found.update(chunk)
                target.write(chunk)
                size += len(chunk)
                progress(size, total)
        return DownloadedFile(copy, PREFIX + found.hexdigest())


def plain_filename(path: str) -> str:
    """Return the last part of a path, or UNNAMED if it is not usable as the name of a file."""
    name = PurePosixPath(path).name
    usable = name not in ("", ".", "..") and name.isprintable() and len(name.encode()) <= 255
    return name if usable else UNNAMED
