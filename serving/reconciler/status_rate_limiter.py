"""Holds back writes of a Model's status that only tell of scaling: at most one a second, so that load writes little."""

from __future__ import annotations

from clusters.base.clock import Clock
from clusters.base.objects import Key, Object

WRITE_INTERVAL = 1.0
"""s between two writes that change nothing but the fields below: they are for people."""

PACED = frozenset({"replicas", "decisions", "starts", "modelFormat"})


class Pacing:
    """When each Model's status was written last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: dict[Key, float] = {}

    def hold(self, key: Key, before: Object, after: Object) -> float:
        """Seconds for which the write must wait; 0 when it may happen now, which is noted."""
        now = self._clock.monotonic()
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        due = self._written.get(key, -WRITE_INTERVAL) + WRITE_INTERVAL
        if changed <= PACED and now < due:
            return due - now
        self._written[key] = now
        return 0.0

    def forget(self, key: Key) -> None:
        """The Model is gone."""
        self._written.pop(key, None)
