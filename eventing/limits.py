"""Limits on senders: their values, a token bucket for rates, and a budget of bytes shared by requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from clusters.base.sizes import format_size
from eventing.errors import TryLater

MEBIBYTE: Final = 1 << 20
SMALL: Final = 64 << 10
"""Bytes of a request that every consumer should accept (CloudEvents `spec.md`, "Size Limits")."""
LARGE_SHARE: Final = 0.75
"""Share of a budget for requests larger than `SMALL`; the rest is reserved for small ones."""
PEER_SHARE: Final = 0.5
"""Share of a budget for one peer. Behind a broker or a proxy all senders are one peer."""
DENSEST: Final = 40
"""Maximum ratio of memory to bytes of a JSON text, reached by nested lists: 88 bytes for each `[0]` of two."""


@dataclass(frozen=True, slots=True)
class WebhookLimits:
    """Limits of the webhook, in bytes, events, requests and seconds."""

    body: int = MEBIBYTE
    """Bytes of one request; a consumer should accept at least 64 KiB (CloudEvents `spec.md`, "Size Limits")."""
    bodies: int = 64 * MEBIBYTE
    """Bytes of all requests in progress."""
    decoded: int = 128 * MEBIBYTE
    """Estimated bytes of memory of all decoded requests. Requests of unknown senders are not decoded."""
    requests: float = 20_000.0
    """Requests a second of all senders, known or not: several times what one core answers, so that a flood is rejected
    before it is decoded."""
    events: float = 50_000.0
    """Events a second of one EventSource: twice what the ledger records on one core, so that one sender does not fill
    its queue."""
    pending: int = 10_000
    """Events of one EventSource that are not processed yet: at about 8 kB each in memory when embedded, 80 MB."""
    unknown: float = 0.1
    """Minimum duration in seconds of a 401 at the path of an EventSource. It covers the time to read a Secret, so that
    response times do not reveal which EventSources exist."""
    tolerance: float = 300.0
    """Maximum difference in seconds between a signature's time and ours, either way (as in Standard Webhooks, AWS and
    Stripe)."""
    leeway: float = 60.0
    """Clock skew in seconds allowed between a token's issuer and us (RFC 7519 §4.1.4: "no more than a few minutes")."""


DEFAULTS: Final = WebhookLimits()


class TokenBucket:
    """A token bucket of `rate` tokens a second; its burst is the tokens of one second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._left = rate
        self._at = float("-inf")

    def take(self, now: float, count: int = 1) -> float:
        """Take `count` tokens at `now` (monotonic seconds); return 0, or the seconds to wait if nothing was taken.

        More tokens than the bucket can hold are granted when it is full; later callers wait until they are paid back.
        """
        if now > self._at:
            self._left = min(self._rate, self._left + (now - self._at) * self._rate)
            self._at = now
        if self._left >= count or self._left >= self._rate:
            self._left -= count
            return 0.0
        return (min(count, self._rate) - self._left) / self._rate


class ByteBudget:
    """A limit on the bytes that all requests together may hold.

    A quarter is reserved for small requests, and one peer may hold half at most, so that a sender of large, slow
    requests cannot block the others.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._peers: Counter[str] = Counter()
        self.used = 0

    def reserve(self, size: int, peer: str = "", held: int = 0) -> None:
        """Reserve `size` more bytes for a request of `peer` that holds `held` bytes already.

        An empty `peer` has no share of its own. Raises TryLater (429) when the budget is exhausted.
        """
        limit = self._limit if held + size <= SMALL or not peer else self._limit * LARGE_SHARE
        if self.used + size > limit or (peer and self._peers[peer] + size > self._limit * PEER_SHARE):
            message = f"requests in progress already hold most of {format_size(self._limit)}: retry later"
            raise TryLater(HTTPStatus.TOO_MANY_REQUESTS, message)
        self.used += size
        if peer:
            self._peers[peer] += size

    def release(self, size: int, peer: str = "") -> None:
        """Return `size` bytes of a request of `peer` to the budget."""
        self.used -= size
        if peer:
            self._peers[peer] -= size
            if self._peers[peer] <= 0:
                del self._peers[peer]

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Reserve `size` bytes while the block runs. Raises TryLater (429)."""
        self.reserve(size)
        try:
            yield
        finally:
            self.release(size)


def decoded_size(body: bytes) -> int:
    """Return an upper bound of the bytes of memory that a JSON text takes when decoded.

    Measured on CPython 3.11, real sizes are 0.2 to 0.8 of it. An object takes 64 bytes, with a member 184; a list item
    takes about 60 with its slot, and so does a member's name. Small texts are not scanned.
    """
    if len(body) <= SMALL:
        return len(body) * DENSEST
    return 2 * len(body) + 208 * body.count(b"{") + 104 * (body.count(b",") + body.count(b"["))
