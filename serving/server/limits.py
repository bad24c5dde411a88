"""How much one request, and all of them together, may take of the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from serving.server.errors import Overloaded

MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds; bytes and seconds."""

    body: int = 64 * MEBIBYTE  # one page of OCR as JSON is 13 MB
    bodies: int = 256 * MEBIBYTE  # of all requests that wait or are read: the memory that callers can claim
    json_numbers: int = 8 * MEBIBYTE  # elements in JSON: in Python each takes 32 bytes until it is in an array
    head: int = 32 * 1024
    headers: int = 100
    head_time: float = 10.0  # from the first byte (of a new connection: from its begin) to the end of the head
    body_check: float = 5.0  # between looks at how much of a body has come: a byte after the first, and from then on …
    body_rate: int = 16 * 1024  # … so many bytes a second: one that drips is cut off after two looks
    linger: float = 2.0  # a refused caller may go on sending so long, so that it sees the answer and not a reset
    keep_alive: float = 75.0  # of an idle connection; longer than gateways keep theirs, so that they close first


class BodyBudget:
    """Lends memory for bodies that do not come in one piece."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lent = 0

    @property
    def lent(self) -> int:
        """Bytes lent now."""
        return self._lent

    def borrow(self, size: int) -> None:
        """`size` more bytes. Raises Overloaded."""
        if self._lent + size > self._limit:
            raise Overloaded("too many large requests at once: try again")
        self._lent += size

    def give_back(self, size: int) -> None:
        """The body is not needed any more."""
        self._lent -= size
