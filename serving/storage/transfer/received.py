"""What has come of a file so far: its bytes, their digest, and which version of the file they are of."""

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
from serving.storage.transfer.web import Answer

_PARTIAL: Final = 206
_WEAK: Final = "W/"  # begins an entity tag that does not promise equal bytes (RFC 9110, 8.8.1)
_LONGEST_ETAG: Final = 1024  # characters
_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_BLOCK: Final = 1 << 20  # bytes read at once


class Received:
    """Bytes at the beginning of `file`, of the version that the strong entity tag `etag` names ("": none does).

    `remember` is told the tag before the first byte of another version is written.
    """

    def __init__(self, file: BinaryIO, etag: str = "", remember: Callable[[str], None] = lambda etag: None) -> None:
        self.file = file
        self.etag = etag
        self.size = 0
        self._hash = hashlib.sha256()
        self._remember = remember
        if etag:
            self._read()

    @property
    def digest(self) -> str:
        """`sha256:…` of the bytes."""
        return PREFIX + self._hash.hexdigest()

    @property
    def range(self) -> Mapping[str, str]:
        """Headers that ask for what is missing, if it is still the same version (RFC 9110, 13.1.5)."""
        return {"Range": f"bytes={self.size}-", "If-Range": self.etag} if self.size else {}

    def continued_by(self, answer: Answer) -> int | None:
        """Return the size of the whole file when the answer's body is the next part of this version, else None.

        The part may end before the file does (RFC 9110, 15.3.7). It has the entity tag of this version: a server that
        does not know If-Range sends a part of whatever version it has now.
        """
        part = _CONTENT_RANGE.fullmatch(answer.header("Content-Range"))
        if answer.status != _PARTIAL or self.size == 0 or part is None or answer.header("ETag") != self.etag:
            return None
        start, end, total = map(int, part.groups())
        return total if self.size == start <= end < total else None

    def begin(self, answer: Answer | None = None) -> None:
        """Forget all; with an answer, that one's body comes from the beginning."""
        self.etag = "" if answer is None else _strong(answer.header("ETag"))
        self.size, self._hash = 0, hashlib.sha256()
        self.file.seek(0)
        self.file.truncate()
        self._remember(self.etag)

    def add(self, chunk: bytes) -> None:
        """The next bytes."""
        self.file.write(chunk)
        self._hash.update(chunk)
        self.size += len(chunk)

    def _read(self) -> None:
        while block := self.file.read(_BLOCK):
            self._hash.update(block)
            self.size += len(block)


@contextlib.contextmanager
def received_at(path: Path, name: str) -> Iterator[Received]:
    """What has come to the file at `path`, which is made when missing; its tag lies beside it. Raises StorageError."""
    note = path.with_name(path.name + ".etag")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        etag = _strong(note.read_text(encoding="utf-8", errors="replace")) if note.exists() else ""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            yield Received(file, etag, lambda tag: _write(note, tag))
    except OSError as error:
        raise StorageError(f"{name}: the cache cannot be written ({error.strerror}): make room") from error


def _strong(tag: str) -> str:
    usable = tag.isascii() and tag.isprintable() and len(tag) <= _LONGEST_ETAG
    return tag if usable and not tag.startswith(_WEAK) else ""


def _write(note: Path, tag: str) -> None:
    if tag or note.exists():
        note.write_text(tag, encoding="utf-8")
