"""Backoffs: the retry schedule of failed events, and the minimum time between changes of one Model. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from clusters.base.backoff import Backoff

MOST_ATTEMPTS: Final = 8
"""Attempts of one event. After the last the event is a dead letter (phase Failed) until a user replays it."""
FIRST_WAIT: Final = 1.0
"""Seconds after the first failure: enough for short disturbances, such as a conflict or a restart."""
LONGEST_WAIT: Final = 300.0
"""Seconds before the last attempt. Waits in between grow by a constant factor of 2.6; together they take 8 minutes."""
_ATTEMPTS: Final = Backoff(FIRST_WAIT, LONGEST_WAIT, factor=(LONGEST_WAIT / FIRST_WAIT) ** (1 / (MOST_ATTEMPTS - 2)))

FIRST_GAP: Final = 1.0
"""Seconds between the first change after a quiet time and the next."""
LARGEST_GAP: Final = 60.0
"""Maximum seconds between two changes; each gap is twice the one before."""
_CHANGES: Final = Backoff(FIRST_GAP, LARGEST_GAP)
QUIET: Final = 2.0
"""Number of gaps without a change after which the backoff of a Model restarts."""


def wait_after(attempts: int) -> float | None:
    """Return the seconds until the next attempt after `attempts` failures, or None if there is none."""
    if attempts >= MOST_ATTEMPTS:
        return None
    return _ATTEMPTS.delay(attempts - 1)


class ChangeBackoff:
    """The backoff between changes of each Model: short at first, doubling during a storm of events.

    Every change creates a revision with its own processes or Pods; events that wait are reduced to the newest.

    Example: after changes at 0 s, 1 s and 3 s, `wait(model, 3.0)` is 4.0.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, int]] = {}  # time of the last change, changes before it in the storm

    def wait(self, key: Hashable, now: float) -> float:
        """Return the seconds until the Model may be changed, 0 for now."""
        if key not in self._last:
            return 0.0
        at, changes = self._last[key]
        return max(0.0, at + _CHANGES.delay(changes) - now)

    def record(self, key: Hashable, now: float) -> None:
        """Record a change at `now` (monotonic seconds)."""
        self._last = {
            one: (at, changes)
            for one, (at, changes) in self._last.items()
            if now - at <= QUIET * _CHANGES.delay(changes)
        }
        former = self._last.get(key)
        self._last[key] = (now, 0 if former is None else former[1] + 1)
