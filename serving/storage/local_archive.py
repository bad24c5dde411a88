"""An archive on this machine: what is unpacked is a copy of our own, hashed while it is made."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from serving.storage import disk
from serving.storage.digest import PREFIX
from serving.storage.progress import Progress
from serving.storage.source import PARTS, File
from serving.storage.tree import CHUNK


class LocalArchive:
    """The archive at `path`; `uri` names it."""

    is_image: Final = False

    def __init__(self, path: Path, uri: str) -> None:
        self._path = path
        self._uri = uri
        self.filename = path.name

    def bring(self, work: Path, progress: Progress) -> File:
        """Copy it. Raises StorageError, OSError."""
        copy = work / PARTS / "0"
        copy.parent.mkdir(mode=0o700, exist_ok=True)
        found, size = hashlib.sha256(), 0
        with disk.open_regular(self._path, self._uri) as file, copy.open("wb") as into:
            while chunk := file.read(CHUNK):
                found.update(chunk)
                into.write(chunk)
                size += len(chunk)
                progress(size, None)
        return File(copy, PREFIX + found.hexdigest())
