"""How often events change one Model: at once after quiet, and ever more seldom in a storm of them. No input or output.

Every change is a revision with processes or Pods of its own; events that wait meanwhile are reduced to the newest.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

FIRST_GAP: Final = 1.0
"""s between the first change after quiet and the next."""
LARGEST_GAP: Final = 60.0
"""s between two changes in a long storm; each gap is twice the one before."""
QUIET: Final = 2.0
"""Gaps without a change after which a Model's next one is the first again."""


class Pace:
    """When each Model may be changed next."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, float]] = {}

    def wait(self, key: Hashable, now: float) -> float:
        """Seconds until the next change may be made; 0 for now."""
        at, gap = self._last.get(key, (now, 0.0))
        return max(0.0, at + gap - now)

    def changed(self, key: Hashable, now: float) -> None:
        """A change was made at `now`."""
        at, gap = self._last.get(key, (now, 0.0))
        stormy = key in self._last and now - at <= QUIET * gap
        self._last[key] = (now, min(2 * gap, LARGEST_GAP) if stormy else FIRST_GAP)
        self._forget(now)

    def _forget(self, now: float) -> None:
        self._last = {key: (at, gap) for key, (at, gap) in self._last.items() if now - at <= QUIET * gap}
