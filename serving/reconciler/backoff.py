"""Delays between passes over one Model: after a refusal by the cluster, and between writes of its status."""

from __future__ import annotations

from clusters.base.backoff import Backoff
from clusters.base.clock import Clock
from clusters.base.objects import Key, Object

FIRST_DELAY = 1.0
"""s: an API server that has just started refuses every write for a moment, until it has loaded the grants."""
LAST_DELAY = 30.0
"""s: a quota, a flag or a conflicting object may be out of the way by then."""
_BACKOFF = Backoff(FIRST_DELAY, LAST_DELAY)

WRITE_INTERVAL = 1.0
"""s between two writes that change only `RATE_LIMITED` fields."""
RATE_LIMITED = frozenset({"replicas", "decisions", "starts", "modelFormat"})
"""Fields of the status that describe scaling. Only readers use them, so a delay does no harm."""


class RefusalBackoff:
    """Exponentially growing delays, separate for each object whose writes the cluster refuses."""

    def __init__(self) -> None:
        self._refusals: dict[Key, int] = {}

    def next_delay(self, key: Key) -> float:
        """Record a refusal. Return the seconds until the next attempt, at most `LAST_DELAY`."""
        refusals = self._refusals.get(key, 0)
        self._refusals[key] = refusals + 1
        return _BACKOFF.delay(refusals)

    def forget(self, key: Key) -> None:
        """Reset the delay of an object that is accepted again or deleted."""
        self._refusals.pop(key, None)


class StatusRateLimiter:
    """Limits status writes that only describe scaling to one per second and Model, so that load causes few writes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: dict[Key, float] = {}

    def delay(self, key: Key, before: Object, after: Object) -> float:
        """Return the seconds for which the write must wait. With 0 it may happen now, and is recorded."""
        now = self._clock.monotonic()
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        due = self._written.get(key, -WRITE_INTERVAL) + WRITE_INTERVAL
        if changed <= RATE_LIMITED and now < due:
            return due - now
        self._written[key] = now
        return 0.0

    def forget(self, key: Key) -> None:
        """Drop the record of a deleted Model."""
        self._written.pop(key, None)
