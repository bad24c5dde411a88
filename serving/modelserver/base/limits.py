"""How much one request, and all of them together, may take of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from clusters.net.hosts import KnownHosts
from serving.modelserver.base.errors import Overloaded

MEBIBYTE: Final = 1 << 20


class Limits(msgspec.Struct, frozen=True):
    """Bounds; bytes and seconds."""

    body: int = 64 * MEBIBYTE  # one page of OCR as JSON is 13 MB
    bodies: int = 256 * MEBIBYTE  # of all requests that wait or are read; while pieces are joined, one is there twice
    answers: int = 256 * MEBIBYTE  # of all answers that callers have not taken; with more there are no inferences
    json_numbers: int = 8 * MEBIBYTE  # elements in JSON: in Python each takes 32 bytes until it is in an array
    head: int = 32 * 1024
    headers: int = 100
    head_time: float = 10.0  # from the first byte (of a new connection: from its begin) to the end of the head
    body_check: float = 5.0  # between looks at how much of a body has come: a byte after the first, and from then on …
    body_rate: int = 16 * 1024  # … so many bytes a second; what came sooner buys two looks of silence and no more
    body_time: float = 300.0  # of reading a body, however it comes: as long as a request may take
    answer_check: float = 10.0  # between looks at how much of an answer was taken, of `body_rate` at least
    ping: float = 60.0  # without a word from a caller over gRPC whose calls are open; one that does not answer within …
    pong: float = 20.0  # … reads nothing any more, and its connection ends
    end: float = 10.0  # that callers have to take answers when the server ends; Kubernetes grants 30 for all of it
    linger: float = 2.0  # a refused caller may go on sending so long, so that it sees the answer and not a reset
    hosts: KnownHosts | None = None  # other names in Host and Origin are refused; None: any is accepted
    keep_alive: float = 75.0  # of an idle connection; longer than gateways keep theirs, so that they close first


SMALL_BODY: Final = 64 * 1024  # bytes; such a body borrows nothing: its connection may have buffered as much besides


class BodyBudget:
    """Lends memory for bodies that are larger than `SMALL_BODY`, or come in pieces."""

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


class Held:
    """What a request has of the server's, its slot or its body's memory: given back by the last that uses it.

    At first one does. `size` is in bytes, 0 of a slot. Used by the event loop.
    """

    __slots__ = ("_give_back", "_users", "size")

    def __init__(self, give_back: Callable[[], object], size: int = 0) -> None:
        self.size = size
        self._give_back = give_back
        self._users = 1

    def use(self) -> None:
        """One more, such as a thread, needs it until `let_go`."""
        self._users += 1

    def let_go(self) -> None:
        """One needs it no more."""
        self._users -= 1
        if not self._users:
            self._give_back()


NOTHING: Final = Held(lambda: None)
"""Of a request that has nothing to give back."""
