"""Read model files from disk: only regular files, and none outside of the model's folder.

All errors are StorageError and name the URI and a file's path relative to it. A folder that bounds a read is a real
path. It is compared with the real path of the opened file, so a link that is added between check and use has no effect.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Final, NoReturn

from clusters.base.sizes import format_size
from serving.storage.base import digest
from serving.storage.base.errors import OutsideFolder, StorageError

LARGEST_FILE: Final = 16 << 30  # bytes; far more than one replica can load
DEEPEST: Final = 32  # parts of a path; `os.walk` and `shutil.rmtree` recurse, and fail at about a thousand
MOST_FILES: Final = 10_000  # of a folder; a model has a few, but the URI of a home folder by mistake has many
_OPEN: Final = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Flags to read a file's bytes; Windows has only the last one."""
_PROC: Final = Path("/proc/self/fd")


def read_file(path: Path, uri: str, root: Path | None = None) -> bytes:
    """Return the content of a regular file of at most LARGEST_FILE bytes; `root` as in `open_regular`."""
    with open_regular(path, uri, root) as file:
        try:
            return file.readall()
        except (OSError, MemoryError) as error:
            raise StorageError(f"{uri}: cannot be read ({_reason(error)})") from error


def read_inside(folder: Path, name: str, uri: str) -> bytes:
    """Return the content of the file `name` (relative, POSIX) of a folder. Raises StorageError if it is outside."""
    return read_file(_inside(folder, name, uri), f"{uri}: {name!r}", folder)


def digest_files(folder: Path, uri: str) -> dict[str, str]:
    """Return the digest of each file of a folder by relative path. Raises StorageError."""
    digests = {}
    for name in list_files(folder, uri):
        with open_regular(_inside(folder, name, uri), f"{uri}: {name!r}", folder) as file:
            try:
                digests[name] = digest.of_open_file(file)
            except OSError as error:
                raise StorageError(f"{uri}: {name!r} cannot be read ({_reason(error)})") from error
    return digests


def list_files(folder: Path, uri: str) -> list[str]:
    """Return the relative paths (POSIX, sorted) of all files below a folder, but `__pycache__`.

    Running or testing a model's code writes `__pycache__`; with it, the same code would be another version.

    Raises StorageError for links to the outside, links to folders (they can form cycles), names with line breaks or
    backslashes (they make the listing ambiguous), paths of more than DEEPEST parts, and more than MOST_FILES files.
    """
    names: list[str] = []
    for where, folders, files in os.walk(folder, onerror=_unreadable(uri)):
        here = Path(where)
        if len(here.relative_to(folder).parts) >= DEEPEST:
            raise StorageError(f"{uri}: has {DEEPEST} nested folders, the limit: name the model's own folder")
        for name in [*folders, *files]:
            _check_entry(here / name, folder, uri)
        folders[:] = [name for name in folders if name != "__pycache__"]
        names += [(here / name).relative_to(folder).as_posix() for name in files]
        if len(names) > MOST_FILES:
            raise StorageError(f"{uri}: has more than {MOST_FILES} files: name the model's own folder or file")
    return sorted(names)


def open_regular(path: Path, uri: str, root: Path | None = None) -> FileIO:
    """Open a regular file to read, without waiting for a device or pipe.

    Raises OutsideFolder when the real path of the file is not below `root` (a real path; None allows all paths), and
    StorageError for anything but a regular file of at most LARGEST_FILE bytes.
    """
    try:
        descriptor = os.open(path, _OPEN)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{uri}: cannot be opened ({_reason(error)}): check that it exists and is readable"
        ) from error
    fault, kind = _fault(descriptor), StorageError
    if not fault and root is not None and not _real_path(descriptor, path).is_relative_to(root):
        fault, kind = "leads outside of the folder: put the file itself there", OutsideFolder
    if fault:
        os.close(descriptor)
        raise kind(f"{uri}: {fault}")
    return FileIO(descriptor, "rb")


def _real_path(descriptor: int, path: Path) -> Path:
    """Return the real path of an open file. Without /proc it is that of `path` now: only Linux runs a platform."""
    return (_PROC / str(descriptor)).readlink() if _PROC.is_dir() else path.resolve()


def _fault(descriptor: int) -> str:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file: name the model's file or folder"
    if found.st_size > LARGEST_FILE:
        return f"has {format_size(found.st_size)}, and {format_size(LARGEST_FILE)} is the limit"
    return ""


def _check_entry(path: Path, folder: Path, uri: str) -> None:
    name = path.relative_to(folder).as_posix()
    if any(sign in name for sign in "\n\r\\"):
        raise StorageError(f"{uri}: the file name {name!r} has a line break or backslash: rename it")
    if path.is_symlink():
        _inside(folder, name, uri)
        if path.is_dir():
            raise StorageError(f"{uri}: {name!r} is a link to a folder: put the folder itself there")


def _inside(folder: Path, name: str, uri: str) -> Path:
    try:
        root, path = folder.resolve(strict=True), (folder / name).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a cycle of links
        raise StorageError(f"{uri}: {name!r} cannot be opened: put the file itself into the folder") from error
    if not path.is_relative_to(root):
        raise StorageError(f"{uri}: {name!r} leads outside of the folder: put the file itself there")
    return path


def _unreadable(uri: str) -> Callable[[OSError], NoReturn]:
    def refuse(error: OSError) -> NoReturn:
        raise StorageError(f"{uri}: a folder in it cannot be read ({_reason(error)})") from error

    return refuse


def _reason(error: Exception) -> str:
    """Return the reason without the path that the text of an OSError contains."""
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
