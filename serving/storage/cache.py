"""Where downloads lie: one folder of the user's own, in which a file appears whole or not at all.

CACHE/sha256/HEX/FILE     downloaded and found to have this digest; it is verified again before each use
CACHE/uri/HEX/FILE        the last download of the URI with this SHA-256, which has no digest
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from serving.storage.errors import StorageError

_OTHERS_MAY_WRITE: Final = 0o022


class Cache:
    """A cache folder, made on first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def place(self, kind: str, key: str, file_name: str) -> Path:
        """Where the file of `key` lies or is to lie. Raises StorageError."""
        place = self._folder / kind / key
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            about = self._folder.stat()
        except OSError as error:
            raise StorageError(f"cannot use the cache {self._folder} (KNODEL_CACHE): {error.strerror}") from error
        if about.st_uid != os.getuid() or about.st_mode & _OTHERS_MAY_WRITE:
            raise StorageError(f"the cache {self._folder} (KNODEL_CACHE) can be written by other users: choose another")
        return place / file_name

    @contextlib.contextmanager
    def writing(self, place: Path) -> Iterator[BinaryIO]:
        """A file that is renamed to `place` at the end of the block, durable; after an error nothing is left."""
        fd, temporary = tempfile.mkstemp(dir=place.parent, prefix=".download-")
        try:
            with os.fdopen(fd, "wb") as file:
                yield file
                file.flush()
                os.fsync(fd)
            Path(temporary).replace(place)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(temporary).unlink()
            raise
