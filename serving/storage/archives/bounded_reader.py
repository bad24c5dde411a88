"""Bounded files for the archive libraries: a hostile header causes neither large allocations nor endless reads."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import IO, Final

from clusters.base.sizes import format_size
from serving.storage.base.errors import StorageError

LARGEST_READ: Final = 4 << 20  # bytes at once; the directory of a zip file with 10 000 files has some 2.5 MB


@contextlib.contextmanager
def unpacking_errors(uri: str) -> Iterator[None]:
    """Raise StorageError for all errors of the archive libraries."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = error.strerror or "its compression is damaged"
        raise StorageError(f"{uri}: cannot be unpacked ({reason})") from error
    except Exception as error:  # also ValueError, struct.error, RecursionError … of their parsers
        raise StorageError(f"{uri}: cannot be unpacked: the archive is damaged ({type(error).__name__})") from error


class BoundedReader(io.RawIOBase):
    """A file that returns at most LARGEST_READ bytes at once. Raises StorageError for larger reads."""

    def __init__(self, file: IO[bytes], uri: str) -> None:
        self._file = file
        self._uri = uri

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most `size` bytes; all remaining ones when it is negative."""
        if size is None or size < 0:
            size = LARGEST_READ + 1
        if size <= LARGEST_READ:
            return self._file.read(size)
        content = self._file.read(LARGEST_READ + 1)
        if len(content) > LARGEST_READ:
            raise StorageError(
                f"{self._uri}: the archive has a header of more than {format_size(LARGEST_READ)}: refused"
            )
        return content

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True


class ForwardReader(BoundedReader):
    """A bounded file that is read from start to end, at most `most` bytes. `last` is the result of the last read."""

    def __init__(self, file: IO[bytes], uri: str, most: int) -> None:
        super().__init__(file, uri)
        self.last = b""
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most `size` bytes."""
        self.last = super().read(size)
        self._check(self._file.tell())
        return self.last

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a later position. Raises StorageError for an earlier one, which could make the reader loop."""
        if whence != os.SEEK_SET or offset < self._file.tell():
            raise StorageError(f"{self._uri}: the archive refers back to an earlier position: refused")
        self._check(offset)
        return super().seek(offset)

    def _check(self, position: int) -> None:
        if position > self._most:
            raise StorageError(
                f"{self._uri}: the archive has more than {format_size(self._most)} when unpacked, the limit"
            )
