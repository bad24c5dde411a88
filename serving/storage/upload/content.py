"""Contents to upload: read by parts, hashed once before the upload, and checked part by part while they are sent.

A content is never in memory as a whole. A file that changes between the hash and the upload is detected before its
changed part is sent, so a store never gets other bytes than those of the digest.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final, Protocol

from serving.storage.base import disk
from serving.storage.base.digest import PREFIX
from serving.storage.base.errors import StorageError

PART: Final = 8 << 20
"""Bytes of one part. S3 requires at least 5 MiB and at most 10 000 parts, Google a multiple of 256 KiB, and Amazon's
registry at most 10 MiB. Each thread holds one part in memory."""


class FileChanged(StorageError):
    """A file was changed while it was uploaded."""


class Content(Protocol):
    """Bytes that can be read from any offset."""

    @property
    def size(self) -> int:
        """The size in bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes, or fewer at the end. Raises StorageError."""
        ...


class FileContent:
    """A regular file; `name` denotes it in messages, and `root` bounds it as in `disk.open_regular`.

    It is opened for each read, so that thousands of files need no descriptors. Raises StorageError.
    """

    def __init__(self, path: Path, name: str, root: Path | None = None) -> None:
        self._path = path
        self._name = name
        self._root = root
        with disk.open_regular(path, name, root) as file:
            self.size = os.fstat(file.fileno()).st_size

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes, or fewer at the end. Raises StorageError."""
        with disk.open_regular(self._path, self._name, self._root) as file:
            try:
                file.seek(offset)
                return file.read(length)
            except OSError as error:
                raise StorageError(f"{self._name}: cannot be read ({error.strerror})") from error


class BytesContent:
    """Bytes in memory."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes, or fewer at the end."""
        return self._content[offset : offset + length]


class JoinedContent:
    """Several contents, one after the other."""

    def __init__(self, contents: Sequence[Content]) -> None:
        self._contents = contents
        self._ends = list(accumulate(content.size for content in contents))
        self.size = self._ends[-1] if self._ends else 0

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes, or fewer at the end. Raises StorageError."""
        found = bytearray()
        index = bisect_right(self._ends, offset)
        while len(found) < length and index < len(self._contents):
            content = self._contents[index]
            begin = max(offset - (self._ends[index] - content.size), 0)
            found += content.read(begin, min(length - len(found), content.size - begin))
            index += 1
        return bytes(found)


@dataclass(frozen=True, slots=True)
class Blob:
    """A content with its digests, which the upload verifies.

    path      its relative path in the artifact (POSIX)
    name      its name in messages
    digest    `sha256:…` of the whole content
    md5       of the whole content, for Google Cloud Storage
    parts     the SHA-256 of each part of PART bytes; an empty content has one empty part
    """

    path: str
    name: str
    content: Content
    digest: str
    md5: bytes
    parts: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.content.size

    def length(self, index: int) -> int:
        """Return the size of a part in bytes."""
        return min(PART, self.size - index * PART)

    def part(self, index: int) -> bytes:
        """Return a part. Raises FileChanged if it is not the one that was hashed, StorageError."""
        part = self.content.read(index * PART, self.length(index))
        if hashlib.sha256(part).digest() != self.parts[index]:
            raise _changed(self.name)
        return part


def hash_content(path: str, name: str, content: Content, report: Callable[[int], None]) -> Blob:
    """Read a content and return it with its digests. `report` is called with the bytes of each part.

    Raises FileChanged when it has another size than before, StorageError.
    """
    whole, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    parts = []
    for offset in range(0, max(content.size, 1), PART):
        part = content.read(offset, PART)
        if len(part) != min(PART, content.size - offset):
            raise _changed(name)
        whole.update(part)
        md5.update(part)
        parts.append(hashlib.sha256(part).digest())
        report(len(part))
    return Blob(path, name, content, PREFIX + whole.hexdigest(), md5.digest(), tuple(parts))


def _changed(name: str) -> FileChanged:
    return FileChanged(f"{name}: was changed while it was uploaded: wait until it is complete, and deploy again")
