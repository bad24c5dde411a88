"""How many events of an EventSource wait for their effect, as far as one webhook knows: without a bound a storm that is
faster than the controller would fill the store.

The controller writes the number into the EventSource's status now and then (`source_controller.py`); what was taken
since is added to it. So it holds with several webhooks, and for an hour while nobody acts on events. Where no
controller has ever looked at an EventSource, as one of an older release does not, nothing is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from clusters.base.clock import Clock
from eventing.objects.ports import EventSource

FORGOTTEN: Final = 3600.0
"""s after which what was taken since the last news is not added any more: controllers that ended with few events seen
said nothing of them."""


@dataclass(slots=True)
class _Taken:
    source: EventSource
    began: float
    count: int = 0


class Backlogs:
    """Of all EventSources; `most` events of one may wait."""

    def __init__(self, most: int, clock: Clock) -> None:
        self.most = most
        self._clock = clock
        self._taken: dict[tuple[str, str], _Taken] = {}
        self._last: _Taken | None = None  # that was counted: events of one come together

    def is_full(self, source: EventSource) -> bool:
        """Whether no more of its events are taken until some have had their effect."""
        known = self._of(source)
        if (now := self._clock.monotonic()) - known.began > FORGOTTEN:
            known.began, known.count = now, 0
        return source.is_counted and source.pending + known.count >= self.most

    def took(self, source: EventSource) -> None:
        """One more event of it was recorded."""
        if self._last is None or self._last.source is not source:
            self._last = self._of(source)
        self._last.count += 1

    def forget(self, key: tuple[str, str]) -> None:
        """That EventSource is no more."""
        self._taken.pop(key, None)

    def _of(self, source: EventSource) -> _Taken:
        """Counted anew with each state of the EventSource that is seen."""
        key = (source.namespace, source.name)
        known = self._taken.get(key)
        if known is None or known.source is not source:
            known = self._taken[key] = _Taken(source, self._clock.monotonic())
        return known
