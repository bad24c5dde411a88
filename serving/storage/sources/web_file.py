"""`http://` and `https://`: one file, or an archive. No credentials are sent."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote

from serving.storage.sources.source import PARTS, Access, File
from serving.storage.transfer.addresses import parse, shown
from serving.storage.transfer.http import Download
from serving.storage.transfer.progress import Progress
from serving.storage.transfer.web import Request

UNNAMED: Final = "model"  # file name of a download whose URI has none


class WebFile:
    """The file at a URL."""

    is_image: Final = False

    def __init__(self, uri: str, access: Access) -> None:
        self._uri = uri
        self._access = access
        self.filename = plain_filename(unquote(parse(uri).request_target.partition("?")[0]))

    def bring(self, work: Path, progress: Progress) -> File:
        """Download it. Raises StorageError."""
        path, name = work / PARTS / "0", shown(self._uri)
        wanted = Download(name, lambda: Request(self._uri, name), path)
        return File(path, self._access.downloader.save(wanted, progress))


def plain_filename(path: str) -> str:
    """The last part of a path, if a file may be called so, else UNNAMED."""
    name = PurePosixPath(path).name
    usable = name not in ("", ".", "..") and name.isprintable() and len(name.encode()) <= 255
    return name if usable else UNNAMED
