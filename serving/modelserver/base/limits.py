"""Limits on one request and on all requests together, and the accounting of memory for bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from clusters.net.hosts import KnownHosts
from serving.modelserver.base.errors import Overloaded

MEBIBYTE: Final = 1 << 20


class ServerLimits(msgspec.Struct, frozen=True):
    """Limits of the HTTP and gRPC servers, in bytes and seconds."""

    body: int = 64 * MEBIBYTE  # of one request; an OCR page as JSON has 13 MB
    body_memory: int = 256 * MEBIBYTE  # of all requests; a body is in memory twice while its pieces are joined
    unread_responses: int = 256 * MEBIBYTE  # of responses that clients have not read; above it, POST is refused
    json_numbers: int = 8 * MEBIBYTE  # elements in JSON; each takes 32 bytes in Python before it is in an array
    head: int = 32 * 1024
    headers: int = 100
    head_time: float = 10.0  # to the end of the head, from its first byte (of a new connection: from its start)
    body_check: float = 5.0  # between checks of a body's progress: one byte by the first check, and from then on …
    body_rate: int = 16 * 1024  # … this many bytes per second; bytes received early make up for at most two checks
    body_time: float = 300.0  # for a whole body, at any rate: the default timeout of a request
    response_check: float = 10.0  # between checks that the client reads a response at `body_rate` or faster
    ping: float = 60.0  # of silence on a gRPC connection with open calls before a ping; without a reply within …
    pong: float = 20.0  # … this time, the connection is closed
    end: float = 10.0  # for clients to read their responses on shutdown; Kubernetes allows 30 for the whole shutdown
    linger: float = 2.0  # for a refused client to go on sending, so that it receives the response and not a reset
    hosts: KnownHosts | None = None  # names that Host and Origin may have; None allows all
    keep_alive: float = 75.0  # of an idle connection; longer than in gateways, so that they close first


SMALL_BODY: Final = 64 * 1024  # bytes; such a body is not counted: its connection may buffer as much anyway


class BodyBudget:
    """A budget of `limit` bytes for bodies that are larger than `SMALL_BODY` or arrive in pieces."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lent = 0

    @property
    def lent(self) -> int:
        """Return the number of bytes in use."""
        return self._lent

    def borrow(self, size: int) -> None:
        """Take `size` bytes. Raises Overloaded if the budget has fewer left."""
        if self._lent + size > self._limit:
            raise Overloaded("too many large requests at once: try again")
        self._lent += size

    def give_back(self, size: int) -> None:
        """Return `size` bytes to the budget."""
        self._lent -= size


class Lease:
    """A reference-counted server resource (slot or body memory), released by its last user.

    It starts with one user. `size` is in bytes, 0 for a slot. Used by the event loop only.
    """

    __slots__ = ("_give_back", "_users", "size")

    def __init__(self, give_back: Callable[[], object], size: int = 0) -> None:
        self.size = size
        self._give_back = give_back
        self._users = 1

    def retain(self) -> None:
        """Add a user, such as a thread, which must call `release`."""
        self._users += 1

    def release(self) -> None:
        """Remove a user; the last one gives the resource back."""
        self._users -= 1
        if not self._users:
            self._give_back()


NO_LEASE: Final = Lease(lambda: None)
"""The lease of a request without a resource."""
