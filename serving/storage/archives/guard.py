"""Files as the readers of archives see them: what a header claims makes them neither allocate nor go in circles."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import IO, Final

from clusters.base.sizes import format_size
from serving.storage.base.errors import StorageError

LARGEST_READ: Final = 4 << 20  # bytes at once: a header, a zip file's directory of 10 000 files (some 250 bytes each)


@contextlib.contextmanager
def unpacking(uri: str) -> Iterator[None]:
    """Whatever the libraries make of hostile bytes is a StorageError."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = error.strerror or "its compression is damaged"
        raise StorageError(f"{uri}: cannot be unpacked ({reason})") from error
    except Exception as error:  # the libraries' own, and of their parsers ValueError, struct.error, RecursionError …
        raise StorageError(f"{uri}: cannot be unpacked: the archive is damaged ({type(error).__name__})") from error


class Guarded(io.RawIOBase):
    """A file of which at most LARGEST_READ bytes are read at once. Its errors are StorageError."""

    def __init__(self, file: IO[bytes], uri: str) -> None:
        self._file = file
        self._uri = uri

    def read(self, size: int | None = -1, /) -> bytes:
        """At most `size` bytes; all that is left when it is negative."""
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
        """Go to a position."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        return self._file.tell()

    def seekable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is."""
        return True


class Forward(Guarded):
    """A guarded file that is read from the beginning to the end, and no more than `most` bytes of it.

    `last` is what was read last.
    """

    def __init__(self, file: IO[bytes], uri: str, most: int) -> None:
        super().__init__(file, uri)
        self.last = b""
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        """At most `size` bytes."""
        self.last = super().read(size)
        self._check(self._file.tell())
        return self.last

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go on to a later position; an archive that leads back would be read for ever."""
        if whence != os.SEEK_SET or offset < self._file.tell():
            raise StorageError(f"{self._uri}: the archive leads back to what was read before: refused")
        self._check(offset)
        return super().seek(offset)

    def _check(self, position: int) -> None:
        if position > self._most:
            raise StorageError(
                f"{self._uri}: the archive has more than {format_size(self._most)} when unpacked, the limit"
            )
