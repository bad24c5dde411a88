"""When a pool may be filled again after a claim: a moment later. Pure.

A member that was claimed loads its model, and somebody waits for it; a new member's start would take its processor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

CALM: Final = 0.25
"""s after the last claim; within it a small model is loaded and has answered."""
LONGEST: Final = 1.0
"""s after the first one: where claims come all the time, the pool is to be filled none the less."""


@dataclass(slots=True)
class Calm:
    """What was seen of a pool's claims, by the monotonic clock."""

    claimed: frozenset[str] = frozenset()
    first: float | None = None
    last: float = 0.0

    def left(self, claimed: Iterable[str], now: float) -> float:
        """Seconds until members may be started, 0 at once; `claimed` are those under claim `now`."""
        present = frozenset(claimed)
        if present - self.claimed:
            self.first = now if self.first is None else self.first
            self.last = now
        self.claimed = present
        if self.first is None:
            return 0.0
        left = min(self.last + CALM, self.first + LONGEST) - now
        if left <= 0:
            self.first = None
        return max(0.0, left)
