"""A file that is downloaded in parts: its bytes so far, their digest, and the version that they belong to."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from serving.storage.base.digest import PREFIX
from serving.storage.base.errors import StorageError
from serving.storage.transfer.client import StoreResponse

_PARTIAL: Final = 206
_WEAK: Final = "W/"  # prefix of an entity tag that does not promise equal bytes (RFC 9110, section 8.8.1)
_LONGEST_ETAG: Final = 1024  # characters
_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_BLOCK: Final = 1 << 20  # bytes read at once


class PartialFile:
    """The first bytes of a download in `file`, of the version with the strong entity tag `etag` ("": unknown version).

    `save_etag` is called with the tag before the first byte of another version is written.
    """

    def __init__(self, file: BinaryIO, etag: str = "", save_etag: Callable[[str], None] = lambda etag: None) -> None:
        self.file = file
        self.etag = etag
        self.size = 0
        self._hash = hashlib.sha256()
        self._save_etag = save_etag
        while etag and (block := self.file.read(_BLOCK)):
            self._hash.update(block)
            self.size += len(block)

    @property
    def digest(self) -> str:
        """The digest (`sha256:…`) of the bytes so far."""
        return PREFIX + self._hash.hexdigest()

    @property
    def range_headers(self) -> Mapping[str, str]:
        """Headers that request the rest of the file if its version is the same (RFC 9110, section 13.1.5)."""
        return {"Range": f"bytes={self.size}-", "If-Range": self.etag} if self.size else {}

    def resumed_size(self, response: StoreResponse) -> int | None:
        """Return the size of the whole file when the response's body is the next part of this version, else None.

        The part may end before the file does (RFC 9110, section 15.3.7). Its entity tag must be the one of this
        version: a server that does not support If-Range sends a part of its present version.
        """
        part = _CONTENT_RANGE.fullmatch(response.header("Content-Range"))
        if response.status != _PARTIAL or self.size == 0 or part is None or response.header("ETag") != self.etag:
            return None
        start, end, total = map(int, part.groups())
        return total if self.size == start <= end < total else None

    def restart(self, response: StoreResponse | None = None) -> None:
        """Delete all bytes; the next ones are the beginning of the response's body, if one is given."""
        self.etag = "" if response is None else _strong(response.header("ETag"))
        self.size, self._hash = 0, hashlib.sha256()
        self.file.seek(0)
        self.file.truncate()
        self._save_etag(self.etag)

    def append(self, chunk: bytes) -> None:
        """Append bytes."""
        self.file.write(chunk)
        self._hash.update(chunk)
        self.size += len(chunk)


@contextlib.contextmanager
def open_partial_file(path: Path, name: str) -> Iterator[PartialFile]:
    """Open the file at `path`, or create it; a file beside it contains the entity tag. Raises StorageError."""
    tag_file = path.with_name(path.name + ".etag")

    def save_etag(tag: str) -> None:
        if tag or tag_file.exists():
            tag_file.write_text(tag, encoding="utf-8")

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        etag = _strong(tag_file.read_text(encoding="utf-8", errors="replace")) if tag_file.exists() else ""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            yield PartialFile(file, etag, save_etag)
    except OSError as error:
        raise StorageError(f"{name}: the cache cannot be written ({error.strerror}): make room") from error


def _strong(tag: str) -> str:
    """Return an entity tag, or "" for a weak or unusable one."""
    usable = tag.isascii() and tag.isprintable() and len(tag) <= _LONGEST_ETAG
    return tag if usable and not tag.startswith(_WEAK) else ""
