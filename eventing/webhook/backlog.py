"""Limits on the pending events of each EventSource, so that a storm faster than the controller cannot fill the store.

The controller writes the number of pending events to the EventSource's status now and then (`source_controller.py`);
events recorded since are added to it. The limit therefore holds with several webhooks, and for an hour without a
controller. If no controller has ever counted the events of an EventSource, as in an older release, there is no limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from clusters.base.clock import Clock
from eventing.objects.ports import EventSource

COUNT_LIFETIME: Final = 3600.0
"""Seconds after which our own count restarts at 0: a controller that stopped with few pending events did not report
that they were processed."""


@dataclass(slots=True)
class _Count:
    source: EventSource
    began: float
    recorded: int = 0


class Backlogs:
    """The pending events of all EventSources, `most` of each at most."""

    def __init__(self, most: int, clock: Clock) -> None:
        self.most = most
        self._clock = clock
        self._counts: dict[tuple[str, str], _Count] = {}
        self._last: _Count | None = None  # events of one EventSource come together

    def is_full(self, source: EventSource) -> bool:
        """Return whether the EventSource has as many pending events as it may have."""
        count = self._count(source)
        if (now := self._clock.monotonic()) - count.began > COUNT_LIFETIME:
            count.began, count.recorded = now, 0
        return source.is_counted and source.pending + count.recorded >= self.most

    def record(self, source: EventSource) -> None:
        """Add one event to its pending events."""
        if self._last is None or self._last.source is not source:
            self._last = self._count(source)
        self._last.recorded += 1

    def delete(self, key: tuple[str, str]) -> None:
        """Drop the count of a deleted EventSource."""
        self._counts.pop(key, None)

    def _count(self, source: EventSource) -> _Count:
        """Return the count for this state of the EventSource; each new state starts a new count."""
        key = (source.namespace, source.name)
        count = self._counts.get(key)
        if count is None or count.source is not source:
            count = self._counts[key] = _Count(source, self._clock.monotonic())
        return count
