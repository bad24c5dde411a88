"""Limits of the model server, and the accounting of memory for bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from clusters.net.server.limits import ConnectionLimits
from serving.modelserver.base.errors import Overloaded

MEBIBYTE: Final = 1 << 20


class ServerLimits(ConnectionLimits, frozen=True):
    """Limits of the HTTP and gRPC servers, in bytes and seconds."""

    body_memory: int = 256 * MEBIBYTE  # of all requests; a body is in memory twice while its pieces are joined
    json_numbers: int = 8 * MEBIBYTE  # elements in JSON; each takes 32 bytes in Python before it is in an array
    ping: float = 60.0  # of silence on a gRPC connection with open calls before a ping; without a reply within …
    pong: float = 20.0  # … this time, the connection is closed


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
