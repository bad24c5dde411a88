"""Unpack zip files with the standard library, through `bounded_reader` and into a `FolderWriter`."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path
from typing import IO, Final, cast

from serving.storage.archives.bounded_reader import BoundedReader, unpacking_errors
from serving.storage.archives.folder_writer import FolderWriter, safe_relative_path
from serving.storage.archives.tar_file import HARMLESS, RATIO
from serving.storage.base.errors import StorageError

_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # a header of LZMA can require 4 GiB of memory
_ENCRYPTED: Final = 0x1
_MODE_SHIFT: Final = 16  # bits; position of the Unix file mode in `external_attr`


def unpack_zip(path: Path, writer: FolderWriter, uri: str) -> None:
    """Write all files of a zip file to a folder. Raises StorageError for links, devices and bad names."""
    with unpacking_errors(uri), path.open("rb") as file, _open(file, uri) as archive:
        packed, claimed = path.stat().st_size, sum(entry.file_size for entry in archive.infolist())
        if claimed > max(
            HARMLESS, RATIO * packed
        ):  # the library checks each claimed size, and the writer the real ones
            raise StorageError(f"{uri}: {packed} bytes claim to be {claimed} when unpacked: refused")
        for entry in archive.infolist():
            _unpack(archive, entry, writer, uri)


def _open(file: IO[bytes], uri: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(cast(IO[bytes], BoundedReader(file, uri)))  # it has all methods that the library calls


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, writer: FolderWriter, uri: str) -> None:
    name = safe_relative_path(entry.orig_filename, uri)  # `filename` would end at a NUL
    if entry.is_dir():
        return
    kind = stat.S_IFMT(entry.external_attr >> _MODE_SHIFT)
    if kind not in (0, stat.S_IFREG) or not name:
        raise StorageError(f"{uri}: {name!r} is a link or device: only plain files and folders are unpacked")
    if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
        raise StorageError(
            f"{uri}: {name!r} is encrypted or has an unsupported compression: pack it again with deflate"
        )
    with archive.open(entry) as content:
        writer.write(name, content.read)
