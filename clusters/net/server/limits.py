"""Limits of HTTP connections, and the check that a request body arrives fast enough. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from clusters.net.hosts import KnownHosts

MAX_BALANCE: Final = 2  # intervals; the cap of the balance


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Limits of HTTP connections, in bytes and seconds."""

    body: int = 64 << 20  # of one request; an OCR page as JSON has 13 MB
    unread_responses: int = 256 << 20  # of responses that clients have not read; above it, POST is refused
    head: int = 32 * 1024
    headers: int = 100
    head_time: float = 10.0  # to the end of the head, from its first byte (of a new connection: from its start)
    body_check: float = 5.0  # between checks of a body's progress: one byte by the first check, and from then on …
    body_rate: int = 16 * 1024  # … this many bytes per second; bytes received early make up for at most two checks
    body_time: float = 300.0  # for a whole body, at any rate: the default timeout of a request
    response_check: float = 10.0  # between checks that the client reads a response at `body_rate` or faster
    end: float = 10.0  # for clients to read their responses on shutdown; Kubernetes allows 30 for the whole shutdown
    linger: float = 2.0  # for a refused client to go on sending, so that it receives the response and not a reset
    hosts: KnownHosts | None = None  # names that Host and Origin may have; None allows all
    keep_alive: float = 75.0  # of an idle connection; longer than in gateways, so that they close first


class BodyRate:
    """Check at regular intervals that one body arrives fast enough.

    The check keeps a balance in seconds, which starts with one interval. Each check costs its interval (`body_check`),
    and each `body_rate` bytes earn one second. A body whose balance runs out is too slow. The balance is capped, so
    that a body that started fast cannot pause for long.
    """

    __slots__ = ("_balance", "_elapsed", "_limits", "_received")

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._balance = limits.body_check
        self._received = 0
        self._elapsed = 0.0

    def is_enough(self, size: int) -> bool:
        """Return whether the body is fast enough; `size` bytes have arrived so far."""
        limits = self._limits
        balance = self._balance - limits.body_check + (size - self._received) / limits.body_rate
        self._balance = min(balance, MAX_BALANCE * limits.body_check)
        self._received = size
        self._elapsed += limits.body_check
        return balance > 0 and self._elapsed < limits.body_time

    def skip(self, size: int) -> None:
        """Skip a check without cost, because the server itself had paused reading."""
        self._balance = max(self._balance, self._limits.body_check)
        self._received = size
