"""Check that a request body arrives fast enough, at regular intervals. Pure.

The check keeps a balance in seconds. Each check costs its interval (`ConnectionLimits.body_check`), and each
`ConnectionLimits.body_rate` bytes earn one second. A body whose balance runs out is too slow. The balance is capped, so
that a body that started fast cannot pause for long.
"""

from __future__ import annotations

from typing import Final

from clusters.net.server.limits import ConnectionLimits

MAX_BALANCE: Final = 2  # intervals; the cap of the balance


class BodyRate:
    """The balance of one body, which starts with one interval."""

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
