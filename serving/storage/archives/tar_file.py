"""Tar files, plain or gzipped: their entries one after the other, read by the standard library, extracted by nobody.

The library is given a file that only goes forward and hands out no large pieces (`guard`), so that no header makes it
allocate, or read in circles. A file whose end is not marked, where the library would just stop, is refused.
"""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final, cast

from serving.storage.archives.guard import Forward, unpacking
from serving.storage.archives.tree import Tree, plain_name
from serving.storage.base.errors import StorageError

RATIO: Final = 200  # to 1: models are inflated to a few times their size; deflate's most is 1032
HARMLESS: Final = 64 << 20  # bytes that may be inflated whatever the ratio
MOST_ENTRIES: Final = 200_000  # of a tar file, those included that are passed over: a base image has some thousands
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_BLOCK: Final = 512  # bytes; a block of zeros marks the end

Read = Callable[[int], bytes]


def unpack_tar(path: Path, tree: Tree, uri: str) -> None:
    """Write all files of the tar file at `path` into the tree. Raises StorageError for links, devices, bad names."""
    with unpacking(uri):
        for entry, read in entries(path, uri, tree.size_limit):
            name = plain_name(entry.name, uri)
            refuse_special(name, entry, uri)
            if entry.isreg():
                tree.write(name, read)


def refuse_special(name: str, entry: tarfile.TarInfo, uri: str) -> None:
    """Raises StorageError for what is neither a plain file nor a folder."""
    if not (entry.isdir() or entry.isreg()) or entry.issparse():
        kind = "link" if entry.issym() or entry.islnk() else "sparse file" if entry.issparse() else "device or pipe"
        raise StorageError(f"{uri}: {name!r} is a {kind}: only plain files and folders are unpacked")
    if entry.isreg() and not name:
        raise StorageError(f"{uri}: has a file without a name")


def entries(path: Path, uri: str, most: int) -> Iterator[tuple[tarfile.TarInfo, Read]]:
    """Header and content of each entry; to be used in `unpacking`.

    `most` are the bytes that the file may have when it is inflated.
    """
    with path.open("rb") as file, _inflated(file, path, uri, most) as forward:
        with tarfile.open(fileobj=forward, mode="r:") as archive:
            yield from _entries(archive, uri)
        if forward.last != bytes(_BLOCK):
            raise StorageError(f"{uri}: the archive is damaged or cut off: pack it again")


def _entries(archive: tarfile.TarFile, uri: str) -> Iterator[tuple[tarfile.TarInfo, Read]]:
    kept: list[tarfile.TarInfo] = archive.members  # type: ignore[attr-defined]  # public, says its documentation
    count = 0
    while (entry := archive.next()) is not None:
        count += 1
        if count > MOST_ENTRIES:
            raise StorageError(f"{uri}: the archive has more than {MOST_ENTRIES} entries, the limit")
        kept.clear()  # the library keeps each
        content = archive.extractfile(entry) if entry.isreg() and not entry.issparse() else None
        yield entry, _nothing if content is None else content.read


def _inflated(file: IO[bytes], path: Path, uri: str, most: int) -> Forward:
    head = file.read(len(_ZSTD))
    file.seek(0)
    if head.startswith(_ZSTD):
        raise StorageError(f"{uri}: is compressed with zstd: compress it with gzip")
    if not head.startswith(_GZIP):
        return Forward(file, uri, most)
    allowed = max(HARMLESS, RATIO * path.stat().st_size)
    return Forward(cast(IO[bytes], gzip.GzipFile(fileobj=file, mode="rb")), uri, min(most, allowed))


def _nothing(size: int) -> bytes:
    return b""
