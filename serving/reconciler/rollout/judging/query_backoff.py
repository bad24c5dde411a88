"""Which queries rest because no answer came in time. Each for itself: one may be slow where all else is well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FIRST: Final = 10.0
LONGEST: Final = 120.0
"""s of a rest: as long as a judge's interval at first, twice as long at each further failure."""
MOST: Final = 1000
"""Queries remembered; when there are more, all are asked once more."""


class Rests:
    """The rests; `monotonic` gives seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._until: dict[str, tuple[float, float]] = {}

    def holds(self, query: str) -> bool:
        """Whether the query is not to be asked now."""
        until, _ = self._until.get(query, (0.0, 0.0))
        return query in self._until and self._monotonic() < until

    def begin(self, query: str) -> None:
        """No answer came in time."""
        if len(self._until) >= MOST and query not in self._until:
            self._until.clear()
        _, last = self._until.get(query, (0.0, 0.0))
        seconds = min(2.0 * last, LONGEST) if last else FIRST
        self._until[query] = (self._monotonic() + seconds, seconds)

    def end(self, query: str) -> None:
        """An answer came."""
        self._until.pop(query, None)
