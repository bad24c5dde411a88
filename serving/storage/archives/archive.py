"""Recognize and unpack archives by the suffix of their name. An archive must contain only regular files and folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from serving.storage.base.errors import StorageError

if TYPE_CHECKING:
    from serving.storage.archives.folder_writer import FolderLimits

SUFFIXES: Final = (".tar", ".tar.gz", ".tgz", ".zip")
_ZIP: Final = ".zip"


def is_archive(name: str) -> bool:
    """Return whether a file of this name is unpacked."""
    return name.lower().endswith(SUFFIXES)


def unpack(path: Path, name: str, folder: Path, uri: str, limits: FolderLimits | None = None) -> dict[str, str]:
    """Unpack the archive `name` at `path` into an empty folder and return the digest of each file by relative path.

    Raises StorageError for links, devices, names that lead out of the folder or occur twice, too many files or bytes,
    and a compression ratio beyond `tar_file.RATIO`.
    """
    from serving.storage.archives.folder_writer import FolderWriter  # few models are archives

    writer = FolderWriter(folder, uri, limits)
    if name.lower().endswith(_ZIP):
        from serving.storage.archives.zip_file import unpack_zip

        unpack_zip(path, writer, uri)
    else:
        from serving.storage.archives.tar_file import unpack_tar

        unpack_tar(path, writer, uri)
    if not writer.digests:
        raise StorageError(f"{uri}: the archive has no files")
    return writer.digests
