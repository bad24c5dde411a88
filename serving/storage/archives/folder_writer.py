"""Write files with untrusted names to a new folder, from an archive, a listing or a layer of an image.

Ambiguous names are refused. Only folders and regular files are created, and no file is replaced, so no name leads
through a link or out of the folder.
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
LONGEST_NAME: Final = 255  # bytes of one part of a path, the limit of Linux
LONGEST_PATH: Final = 1024  # bytes
_HEADERS: Final = 4096  # bytes of the header of a tar file's entry, with a long name


@dataclass(frozen=True, slots=True)
class FolderLimits:
    """Limits of one folder: the number of files, and their bytes in all."""

    files: int = MOST_FILES
    size: int = LARGEST_FILE


class FolderWriter:
    """Writes to `folder`, which is empty at first. `digests` maps the relative path of each file to its digest."""

    def __init__(self, folder: Path, uri: str, limits: FolderLimits | None = None) -> None:
        self.folder = folder
        self.digests: dict[str, str] = {}
        self._uri = uri
        self._limits = limits or FolderLimits()
        self._sizes: dict[str, int] = {}
        self._size = 0

    @property
    def archive_limit(self) -> int:
        """The limit in bytes of an archive of such a folder: files with headers and padding."""
        return self._limits.size + self._limits.files * _HEADERS

    def write(self, name: str, read: Callable[[int], bytes]) -> None:
        """Add the file `name`; `read(size)` returns its next bytes. Raises StorageError."""
        found, size = hashlib.sha256(), 0
        with self._new_path(name) as path, path.open("xb") as file:
            while chunk := read(CHUNK):
                size += len(chunk)
                self._check_size(size)
                found.update(chunk)
                file.write(chunk)
        self._add(name, PREFIX + found.hexdigest(), size)

    def add_file(self, name: str, path: Path, digest: str) -> None:
        """Move the file at `path`, which has this digest, to `name`. Raises StorageError."""
        with self._new_path(name) as target:
            size = path.stat().st_size
            self._check_size(size)
            if target.exists():  # a rename would replace it
                raise FileExistsError(target)
            path.rename(target)
        self._add(name, digest, size)

    def remove(self, name: str) -> None:
        """Delete the file `name`, and its folders that are empty then."""
        self._size -= self._sizes.pop(name)
        del self.digests[name]
        path = self.folder / name
        path.unlink()
        for parent in path.parents:
            if parent == self.folder or any(parent.iterdir()):
                break
            parent.rmdir()

    @contextlib.contextmanager
    def _new_path(self, name: str) -> Iterator[Path]:
        """Yield the path of the new file `name` (from `safe_relative_path`), whose folders are created."""
        if len(self.digests) >= self._limits.files:
            raise StorageError(f"{self._uri}: has more than {self._limits.files} files, the limit")
        path = self.folder / name
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield path
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise StorageError(f"{self._uri}: has {name!r} twice, or as both a file and a folder") from error
        except OSError as error:
            if error.errno is None:  # from the reader of a damaged archive, not from this folder
                raise
            raise StorageError(f"{self._uri}: {name!r} cannot be written ({error.strerror}): make room") from error

    def _check_size(self, size: int) -> None:
        if self._size + size > self._limits.size:
            raise StorageError(f"{self._uri}: has more than {format_size(self._limits.size)}, the limit")

    def _add(self, name: str, digest: str, size: int) -> None:
        self.digests[name] = digest
        self._sizes[name] = size
        self._size += size


def safe_relative_path(name: str, uri: str) -> str:
    """Return a relative path without `.` parts; "" for the folder itself.

    Raises StorageError for a name that could lead out of the folder or is ambiguous.

    Example:
        safe_relative_path("./a/b.onnx", "the archive")  # "a/b.onnx"
    """
    parts = [part for part in name.removesuffix("/").split("/") if part != "."]
    fault = ""
    if not name.isprintable() or "\\" in name:
        fault = "has a control character or a backslash"
    elif ".." in parts or ("" in parts and name):
        fault = "is absolute, has '..' or an empty part"
    else:
        sizes = [len(part.encode()) for part in parts]  # printable text has no lone surrogates
        if max(sizes, default=0) > LONGEST_NAME or sum(sizes) > LONGEST_PATH:
            fault = "is too long"
        elif len(parts) > DEEPEST:
            fault = "is in too many folders"
    if fault:
        raise StorageError(f"{uri}: the file name {name[:80]!r} {fault}: refused")
    return "/".join(parts)
