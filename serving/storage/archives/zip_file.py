"""Zip files: read by the standard library through `guard`, written by `tree`."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path
from typing import IO, Final, cast

from serving.storage.archives.guard import Guarded, unpacking
from serving.storage.archives.tar_file import HARMLESS, RATIO
from serving.storage.archives.tree import Tree, plain_name
from serving.storage.base.errors import StorageError

_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # LZMA's headers ask for up to 4 GiB of memory
_ENCRYPTED: Final = 0x1
_MODE_SHIFT: Final = 16  # bits: where Unix keeps a file's mode in `external_attr`


def unpack_zip(path: Path, tree: Tree, uri: str) -> None:
    """Write all files of the zip file at `path` into the tree. Raises StorageError for links, devices, bad names."""
    with unpacking(uri), path.open("rb") as file, zipfile.ZipFile(_guarded(file, uri)) as archive:
        _check_sizes(archive, path.stat().st_size, uri)
        for entry in archive.infolist():
            _unpack(archive, entry, tree, uri)


def _guarded(file: IO[bytes], uri: str) -> IO[bytes]:
    return cast(IO[bytes], Guarded(file, uri))  # it has what the library calls


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, tree: Tree, uri: str) -> None:
    name = plain_name(entry.orig_filename, uri)  # as it was written; `filename` ends at a NUL
    if entry.is_dir():
        return
    kind = stat.S_IFMT(entry.external_attr >> _MODE_SHIFT)
    if kind not in (0, stat.S_IFREG) or not name:
        raise StorageError(f"{uri}: {name!r} is a link or device: only plain files and folders are unpacked")
    if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _METHODS:
        raise StorageError(f"{uri}: {name!r} is encrypted or compressed in a rare way: pack it again with deflate")
    with archive.open(entry) as content:
        tree.write(name, content.read)


def _check_sizes(archive: zipfile.ZipFile, packed: int, uri: str) -> None:
    """What the entries claim; that they do not lie, the tree and the library see while they are written."""
    claimed = sum(entry.file_size for entry in archive.infolist())
    if claimed > max(HARMLESS, RATIO * packed):
        raise StorageError(f"{uri}: {packed} bytes claim to be {claimed} when unpacked: refused")
