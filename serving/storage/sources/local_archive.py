"""An archive on this machine: what is unpacked is a copy of our own, hashed while it is made."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from serving.storage.archives.tree import CHUNK
from serving.storage.base import disk
from serving.storage.base.digest import PREFIX
from serving.storage.sources.local import Place
from serving.storage.sources.source import PARTS, File
from serving.storage.transfer.progress import Progress


class LocalArchive:
    """The archive at `place`; `uri` names it."""

    is_image: Final = False

    def __init__(self, place: Place, uri: str) -> None:
        self._place = place
        self._uri = uri
        self.filename = place.path.name

    def bring(self, work: Path, progress: Progress) -> File:
        """Copy it. Raises StorageError, OSError."""
        copy = work / PARTS / "0"
        copy.parent.mkdir(mode=0o700, exist_ok=True)
        found, size = hashlib.sha256(), 0
        with disk.open_regular(self._place.path, self._uri, self._place.root) as file, copy.open("wb") as into:
            total = os.fstat(file.fileno()).st_size
            while chunk := file.read(CHUNK):
                found.update(chunk)
                into.write(chunk)
                size += len(chunk)
                progress(size, total)
        return File(copy, PREFIX + found.hexdigest())
