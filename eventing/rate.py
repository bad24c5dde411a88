"""How many a second: a token bucket, and the room that bodies take. Pure but for their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final

from clusters.base.sizes import format_size
from eventing.errors import TryLater

SMALL: Final = 64 << 10
"""Bytes of a request that every consumer should take (CloudEvents `spec.md`, "Size Limits")."""
LARGE_SHARE: Final = 0.75
"""Of a room, for the requests that are larger than `SMALL`."""
PEER_SHARE: Final = 0.5
"""Of a room, for one peer: behind a broker or a proxy all senders are one."""
DENSEST: Final = 40
"""Times as much memory as bytes: a list of 88 bytes for each `[0]` of two, many in one another."""


class TokenBucket:
    """`rate` a second, and as many at once as come in one second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._left = rate
        self._at = float("-inf")

    def take(self, now: float, count: int = 1) -> float:
        """0 when `count` may pass at `now`, monotonic seconds; else nothing is taken: the seconds to wait.

        More than the bucket ever holds pass when it is full, and are paid back by those who come later.
        """
        if now > self._at:
            self._left = min(self._rate, self._left + (now - self._at) * self._rate)
            self._at = now
        if self._left >= count or self._left >= self._rate:
            self._left -= count
            return 0.0
        return (min(count, self._rate) - self._left) / self._rate


class Room:
    """Bytes that all requests together may hold.

    Whoever sends much slowly leaves room to others: to small requests a quarter of it, to other peers a half.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._peers: Counter[str] = Counter()
        self.taken = 0

    def take(self, size: int, peer: str = "", held: int = 0) -> None:
        """`size` more for a request of `peer` (empty: not counted) that has `held` so far. Raises TryLater (429)."""
        limit = self._limit if held + size <= SMALL or not peer else self._limit * LARGE_SHARE
        if self.taken + size > limit or (peer and self._peers[peer] + size > self._limit * PEER_SHARE):
            message = f"events of more than {format_size(self._limit)} are under way: send it again a little later"
            raise TryLater(HTTPStatus.TOO_MANY_REQUESTS, message)
        self.taken += size
        if peer:
            self._peers[peer] += size

    def give_back(self, size: int, peer: str = "") -> None:
        """The request is answered."""
        self.taken -= size
        if peer:
            self._peers[peer] -= size
            if self._peers[peer] <= 0:
                del self._peers[peer]

    @contextmanager
    def lent(self, size: int) -> Iterator[None]:
        """`size` for as long as the block runs. Raises TryLater (429)."""
        self.take(size)
        try:
            yield
        finally:
            self.give_back(size)


def decoded_size(body: bytes) -> int:
    """Bytes of memory that the values of a JSON text take at most: CPython 3.11 has them in 0.2 to 0.8 of it.

    An object takes 64, with a member 184; an item some 60 with its place, and a member's name as much. A small text is
    not looked at.
    """
    if len(body) <= SMALL:
        return len(body) * DENSEST
    return 2 * len(body) + 208 * body.count(b"{") + 104 * (body.count(b",") + body.count(b"["))
