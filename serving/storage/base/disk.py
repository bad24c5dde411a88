"""Reading model files from disk: regular files only, and nothing outside of a model's folder.

All errors are StorageError and name the URI and a file's path relative to it. Where a folder bounds what is read it is
given by its real path, and compared with where the opened file really lies: who may write to it cannot lead outside by
a link that is put there between check and use.
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
from serving.storage.base.errors import Outside, StorageError

LARGEST_FILE: Final = 16 << 30  # bytes; far above what one replica of this server can load
DEEPEST: Final = 32  # parts of a file's path; `os.walk` and `shutil.rmtree` recurse, and fail at some thousand
MOST_FILES: Final = 10_000  # of a folder; a model has a few, a mistaken URI (a home folder) has many more


def read_file(path: Path, uri: str, root: Path | None = None) -> bytes:
    """The bytes of a regular file, read once from one open file (≤ LARGEST_FILE); `root` as for `open_regular`."""
    with open_regular(path, uri, root) as file:
        try:
            return file.readall()
        except (OSError, MemoryError) as error:
            raise StorageError(f"{uri}: cannot be read ({_reason(error)})") from error


def read_inside(folder: Path, name: str, uri: str) -> bytes:
    """The bytes of the file `name` (relative, POSIX) of a folder; refused when it leads outside of it."""
    return read_file(_inside(folder, name, uri), f"{uri}: {name!r}", folder)


def digest_files(folder: Path, uri: str) -> dict[str, str]:
    """Relative path → digest of each file of a folder."""
    digests = {}
    for name in list_files(folder, uri):
        with open_regular(_inside(folder, name, uri), f"{uri}: {name!r}", folder) as file:
            try:
                digests[name] = digest.of_open_file(file)
            except OSError as error:
                raise StorageError(f"{uri}: {name!r} cannot be read ({_reason(error)})") from error
    return digests


def list_files(folder: Path, uri: str) -> list[str]:
    """The relative paths (POSIX, sorted) of all files below a folder.

    Refused are links that lead outside, linked folders (they can form circles), what is no regular file, names that
    would make the listing ambiguous (line breaks, backslashes), paths of more than DEEPEST parts, and more than
    MOST_FILES files.
    """
    names: list[str] = []
    for where, folders, files in os.walk(folder, onerror=_unreadable(uri)):
        here = Path(where)
        if len(here.relative_to(folder).parts) >= DEEPEST:
            raise StorageError(
                f"{uri}: has {DEEPEST} folders within one another, which is too many: name the model's own folder"
            )
        for name in [*folders, *files]:
            _check_entry(here / name, folder, uri)
        names += [(here / name).relative_to(folder).as_posix() for name in files]
        if len(names) > MOST_FILES:
            raise StorageError(f"{uri}: has more than {MOST_FILES} files: name the model's own folder or file")
    return sorted(names)


def open_regular(path: Path, uri: str, root: Path | None = None) -> FileIO:
    """Open a regular file to read; a device or pipe is refused without waiting for it.

    So is what really lies outside of `root`, a real path (None: it may lie anywhere).
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{uri}: cannot be opened ({_reason(error)}): check that it exists and is readable"
        ) from error
    fault, kind = _fault(descriptor), StorageError
    if not fault and root is not None and not Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(root):
        fault, kind = "leads outside of the folder: put the file itself there", Outside
    if fault:
        os.close(descriptor)
        raise kind(f"{uri}: {fault}")
    return FileIO(descriptor, "rb")


def _fault(descriptor: int) -> str:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file: name the model's file or folder"
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
            raise StorageError(f"{uri}: {name!r} is a linked folder: put the folder itself there")


def _inside(folder: Path, name: str, uri: str) -> Path:
    try:
        root, path = folder.resolve(strict=True), (folder / name).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a circle of links
        raise StorageError(f"{uri}: {name!r} cannot be opened: put the file itself into the folder") from error
    if not path.is_relative_to(root):
        raise StorageError(f"{uri}: {name!r} leads outside of the folder: put the file itself there")
    return path


def _unreadable(uri: str) -> Callable[[OSError], NoReturn]:
    def refuse(error: OSError) -> NoReturn:
        raise StorageError(f"{uri}: a folder in it cannot be read ({_reason(error)})") from error

    return refuse


def _reason(error: Exception) -> str:
    """Words without the path that an OSError's text carries."""
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
