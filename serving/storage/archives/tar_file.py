"""Read the entries of tar files, plain or gzipped, with the standard library, but without its extraction.

The library reads from a file that only moves forward and bounds each read (`bounded_reader`), so that no header causes
a large allocation or an endless loop. A file without an end marker is refused, although the library accepts it.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final, cast

from serving.storage.archives.bounded_reader import ForwardReader, unpacking_errors
from serving.storage.archives.folder_writer import FolderWriter, safe_relative_path
from serving.storage.base.errors import StorageError

RATIO: Final = 200  # to 1; models inflate to a few times their size, and deflate reaches 1032
HARMLESS: Final = 64 << 20  # bytes of an inflated file that may have any ratio
MOST_ENTRIES: Final = 200_000  # of a tar file, including ignored ones; a base image has some thousands
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_BLOCK: Final = 512  # bytes; a block of zeros marks the end

Read = Callable[[int], bytes]


def unpack_tar(path: Path, writer: FolderWriter, uri: str) -> None:
    """Write all files of a tar file to a folder. Raises StorageError for links, devices and bad names."""
    with unpacking_errors(uri):
        for entry, read in read_entries(path, uri, writer.archive_limit):
            name = safe_relative_path(entry.name, uri)
            refuse_special_file(name, entry, uri)
            if entry.isreg():
                writer.write(name, read)


def refuse_special_file(name: str, entry: tarfile.TarInfo, uri: str) -> None:
    """Raise StorageError for an entry that is neither a plain file nor a folder."""
    if not (entry.isdir() or entry.isreg()) or entry.issparse():
        kind = "link" if entry.issym() or entry.islnk() else "sparse file" if entry.issparse() else "device or pipe"
        raise StorageError(f"{uri}: {name!r} is a {kind}: only plain files and folders are unpacked")
    if entry.isreg() and not name:
        raise StorageError(f"{uri}: has a file without a name")


def read_entries(path: Path, uri: str, most: int) -> Iterator[tuple[tarfile.TarInfo, Read]]:
    """Yield the header of each entry and a function that reads its content. Call it within `unpacking_errors`.

    `most` bounds the bytes of the inflated file.
    """
    with path.open("rb") as file, _inflated(file, path, uri, most) as forward:
        with tarfile.open(fileobj=forward, mode="r:") as archive:
            yield from _entries(archive, uri)
        if forward.last != bytes(_BLOCK):
            raise StorageError(f"{uri}: the archive is damaged or cut off: pack it again")


def _entries(archive: tarfile.TarFile, uri: str) -> Iterator[tuple[tarfile.TarInfo, Read]]:
    kept: list[tarfile.TarInfo] = archive.members  # type: ignore[attr-defined]  # documented as public
    count = 0
    while (entry := archive.next()) is not None:
        count += 1
        if count > MOST_ENTRIES:
            raise StorageError(f"{uri}: the archive has more than {MOST_ENTRIES} entries, the limit")
        kept.clear()  # the library keeps a reference to each entry
        content = archive.extractfile(entry) if entry.isreg() and not entry.issparse() else None
        yield entry, io.BytesIO().read if content is None else content.read


def _inflated(file: IO[bytes], path: Path, uri: str, most: int) -> ForwardReader:
    head = file.read(len(_ZSTD))
    file.seek(0)
    if head.startswith(_ZSTD):
        raise StorageError(f"{uri}: is compressed with zstd: compress it with gzip")
    if not head.startswith(_GZIP):
        return ForwardReader(file, uri, most)
    allowed = max(HARMLESS, RATIO * path.stat().st_size)
    return ForwardReader(cast(IO[bytes], gzip.GzipFile(fileobj=file, mode="rb")), uri, min(most, allowed))
