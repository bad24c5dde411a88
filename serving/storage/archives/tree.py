"""A new folder that is filled with files which somebody else named: an archive, a listing, a layer of an image.

Names are taken only when they cannot be misread; nothing but folders and regular files is made, and nothing is replaced
unless asked for, so that no name leads through a link or out of the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clusters.base.sizes import format_size
from serving.storage.base.digest import PREFIX
from serving.storage.base.disk import DEEPEST, LARGEST_FILE, MOST_FILES
from serving.storage.base.errors import StorageError

CHUNK: Final = 1 << 18  # bytes read at once
LONGEST_NAME: Final = 255  # bytes of one part of a path, as Linux has it
LONGEST_PATH: Final = 1024  # bytes
_HEADERS: Final = 4096  # bytes; of a tar file's entry, long names included


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """Bounds of one folder: files, and bytes of all together."""

    files: int = MOST_FILES
    size: int = LARGEST_FILE


class Tree:
    """The folder `folder`, empty at first; `digests` has each file's relative path and digest."""

    def __init__(self, folder: Path, uri: str, limits: TreeLimits | None = None) -> None:
        self.folder = folder
        self.digests: dict[str, str] = {}
        self._uri = uri
        self._limits = limits or TreeLimits()
        self._sizes: dict[str, int] = {}
        self._size = 0

    @property
    def size_limit(self) -> int:
        """Bytes that an archive of such a folder may have: its files, and headers and padding around them."""
        return self._limits.size + self._limits.files * _HEADERS

    def write(self, name: str, read: Callable[[int], bytes]) -> None:
        """Add the file `name` with the bytes that `read` yields until it has no more. Raises StorageError."""
        found, size = hashlib.sha256(), 0
        with self._place(name) as place, place.open("xb") as file:
            while chunk := read(CHUNK):
                size += len(chunk)
                self._check_size(size)
                found.update(chunk)
                file.write(chunk)
        self._add(name, PREFIX + found.hexdigest(), size)

    def move_in(self, name: str, path: Path, digest: str) -> None:
        """Add the file at `path`, whose digest is known, as `name`. Raises StorageError."""
        with self._place(name) as place:
            size = path.stat().st_size
            self._check_size(size)
            if place.exists():  # which a rename would replace
                raise FileExistsError(place)
            path.rename(place)
        self._add(name, digest, size)

    def remove(self, name: str) -> None:
        """Take the file `name` out again, and the folders that are empty then."""
        self._size -= self._sizes.pop(name)
        del self.digests[name]
        path = self.folder / name
        path.unlink()
        for parent in path.parents:
            if parent == self.folder or any(parent.iterdir()):
                break
            parent.rmdir()

    @contextlib.contextmanager
    def _place(self, name: str) -> Iterator[Path]:
        """Where a new file `name` (as `plain_name` made it) lies; its folders are made."""
        if len(self.digests) >= self._limits.files:
            raise StorageError(f"{self._uri}: has more than {self._limits.files} files, the limit")
        place = self.folder / name
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield place
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise StorageError(f"{self._uri}: has {name!r} twice, or as file and folder at once") from error
        except OSError as error:
            if error.errno is None:  # not of this folder: what reads an archive found it damaged
                raise
            raise StorageError(f"{self._uri}: {name!r} cannot be written ({error.strerror}): make room") from error

    def _check_size(self, size: int) -> None:
        if self._size + size > self._limits.size:
            raise StorageError(f"{self._uri}: has more than {format_size(self._limits.size)}, the limit")

    def _add(self, name: str, digest: str, size: int) -> None:
        self.digests[name] = digest
        self._sizes[name] = size
        self._size += size


def plain_name(name: str, uri: str) -> str:
    """A relative path without `.` in it, "" for the folder itself.

    Raises StorageError for what could lead out of the folder, or be read in two ways.
    """
    parts = [part for part in name.removesuffix("/").split("/") if part != "."]
    fault = _fault(name, parts)
    if fault:
        raise StorageError(f"{uri}: the file name {name[:80]!r} {fault}: refused")
    return "/".join(parts)


def _fault(name: str, parts: list[str]) -> str:
    if not name.isprintable() or "\\" in name:
        return "has a control sign or a backslash"
    if ".." in parts or ("" in parts and name):
        return "is absolute, has '..' or an empty part"
    encoded = [part.encode() for part in parts]  # printable text has no lone surrogates
    if max(map(len, encoded), default=0) > LONGEST_NAME or sum(map(len, encoded)) > LONGEST_PATH:
        return "is too long"
    return "is in too many folders" if len(parts) > DEEPEST else ""
