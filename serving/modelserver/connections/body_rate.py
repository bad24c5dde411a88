"""How fast a body comes, looked at from time to time. Pure.

Seconds are the currency: each second of a look costs one, `ServerLimits.body_rate` bytes earn one, and who has none left is
too slow. Nobody saves up more than a few looks' worth, so that a body that came quickly at first cannot rest for long.
"""

from __future__ import annotations

from typing import Final

from serving.modelserver.base.limits import ServerLimits

SAVED: Final = 2  # looks without a byte that a quick start pays for


class BodyRate:
    """Of one body; looks are `ServerLimits.body_check` seconds apart. It begins with one look's worth."""

    __slots__ = ("_left", "_limits", "_seen", "_spent")

    def __init__(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._left = limits.body_check
        self._seen = 0
        self._spent = 0.0

    def is_enough(self, size: int) -> bool:
        """A look: `size` bytes have come so far."""
        limits = self._limits
        left = self._left - limits.body_check + (size - self._seen) / limits.body_rate
        self._left = min(left, SAVED * limits.body_check)
        self._seen = size
        self._spent += limits.body_check
        return left > 0 and self._spent < limits.body_time

    def rest(self, size: int) -> None:
        """A look while nothing can come, for reasons that are ours: it costs nothing."""
        self._left = max(self._left, self._limits.body_check)
        self._seen = size
