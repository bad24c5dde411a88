"""Cutting a byte stream into lines, of whatever length and however the network has cut it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from clusters.base.errors import KnodelError

LARGEST_LINE = 32 * 1024 * 1024
"""Bytes of one line: etcd stores objects up to 1.5 MiB, whose JSON is a few times that at worst."""


class LineTooLong(KnodelError):
    """What comes is no stream of lines."""


class Lines:
    """Feed it chunks, take whole lines. Every byte is looked at once."""

    def __init__(self, largest: int = LARGEST_LINE) -> None:
        self._largest = largest
        self._rest: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that `chunk` completes, without their ends, empty ones left out. Raises LineTooLong."""
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            if self._rest:
                line = b"".join((*self._rest, line))
                self._rest.clear()
                self._size = 0
            if line and not line.isspace():
                yield line
        if rest:
            self._rest.append(rest)
            self._size += len(rest)
        if self._size > self._largest:
            raise LineTooLong(f"a line of more than {self._largest} bytes")
