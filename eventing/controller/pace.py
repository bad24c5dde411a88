"""How often events change one Model: at once after quiet, and ever more seldom in a storm of them. No input or output.

Every change is a revision with processes or Pods of its own; events that wait meanwhile are reduced to the newest.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from clusters.base.backoff import Backoff

FIRST_GAP: Final = 1.0
"""s between the first change after quiet and the next."""
LARGEST_GAP: Final = 60.0
"""s between two changes in a long storm; each gap is twice the one before."""
_GAPS: Final = Backoff(FIRST_GAP, LARGEST_GAP)
QUIET: Final = 2.0
"""Gaps without a change after which a Model's next one is the first again."""


class Pace:
    """When each Model may be changed next."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, int]] = {}  # time of the last change, changes before it in the storm

    def wait(self, key: Hashable, now: float) -> float:
        """Seconds until the next change may be made; 0 for now."""
        if key not in self._last:
            return 0.0
        at, changes = self._last[key]
        return max(0.0, at + _GAPS.delay(changes) - now)

    def changed(self, key: Hashable, now: float) -> None:
        """A change was made at `now`."""
        self._forget(now)
        former = self._last.get(key)
        self._last[key] = (now, 0 if former is None else former[1] + 1)

    def _forget(self, now: float) -> None:
        self._last = {
            key: (at, changes) for key, (at, changes) in self._last.items() if now - at <= QUIET * _GAPS.delay(changes)
        }
