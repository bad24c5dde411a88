"""The starts of the last hour by namespace and pool class, which determine the size of a pool. In memory only."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, NamedTuple

HORIZON: Final = 3_600.0
"""Seconds; starts that count: the bursts of a working hour, but not those of last night."""
KEPT: Final = 2_000
"""Maximum starts of one class, the newest: more per hour add no information, and every pass reads all of them."""


class ClassKey(NamedTuple):
    """A class within a namespace: members serve only revisions of their namespace."""

    namespace: str
    pool_class: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """A start that could use a member, in monotonic seconds, and whether one was claimed."""

    at: float
    claimed: bool


class Arrivals:
    """Starts in order of time."""

    def __init__(self) -> None:
        self._known: OrderedDict[ClassKey, deque[Arrival]] = OrderedDict()  # by the newest arrival, oldest first

    def __len__(self) -> int:
        """Return the number of classes with a recorded start."""
        return len(self._known)

    def record(self, key: ClassKey, claimed: bool, now: float) -> None:
        """Record a start of a replica of that class."""
        self._known.setdefault(key, deque(maxlen=KEPT)).append(Arrival(now, claimed))
        self._known.move_to_end(key)
        while self._known:
            oldest, arrivals = next(iter(self._known.items()))
            if arrivals[-1].at > now - HORIZON:
                break
            del self._known[oldest]

    def of(self, key: ClassKey, now: float) -> tuple[Arrival, ...]:
        """Return the starts of the last hour, oldest first."""
        known = self._known.get(key, ())
        return tuple(arrival for arrival in known if arrival.at > now - HORIZON)

    def carry_over(self, before: ClassKey, after: ClassKey) -> None:
        """Move starts to a new class, after a pool's template changed."""
        both = (*self._known.pop(before, ()), *self._known.get(after, ()))
        if both:
            self._known[after] = deque(sorted(both, key=lambda arrival: arrival.at), maxlen=KEPT)
