"""Which queries rest because no answer came in time. Each for itself: one may be slow where all else is well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from clusters.base.backoff import Backoff

FIRST: Final = 10.0
LONGEST: Final = 120.0
"""s of a rest: as long as a judge's interval at first, twice as long at each further failure."""
_BACKOFF: Final = Backoff(FIRST, LONGEST)
MOST: Final = 1000
"""Queries remembered; when there are more, all are asked once more."""


class Rests:
    """The rests; `monotonic` gives seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until: dict[str, tuple[float, int]] = {}  # end of the rest, failures in a row

    def holds(self, query: str) -> bool:
        """Whether the query is not to be asked now."""
        until, _ = self._until.get(query, (0.0, 0))
        return query in self._until and self._monotonic() < until

    def begin(self, query: str) -> None:
        """No answer came in time."""
        if len(self._until) >= MOST and query not in self._until:
            self._until.clear()
        _, failures = self._until.get(query, (0.0, 0))
        self._until[query] = (self._monotonic() + _BACKOFF.delay(failures), failures + 1)

    def end(self, query: str) -> None:
        """An answer came."""
        self._until.pop(query, None)
