"""The starts of the last hour, by namespace and pool class: what the size of a pool follows. In memory only."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, NamedTuple

HORIZON: Final = 3_600.0
"""s; the starts that count: a working hour's bursts, not last night's."""
KEPT: Final = 2_000
"""Starts of one class, the newest: more in an hour say nothing that these do not, and a pass reads all of them."""


class ClassKey(NamedTuple):
    """Members of one class are of use in one namespace."""

    namespace: str
    pool_class: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """A start that wanted a member, at monotonic seconds, and whether one was claimed."""

    at: float
    claimed: bool


class Arrivals:
    """Noted in order of time."""

    def __init__(self) -> None:
        self._known: OrderedDict[ClassKey, deque[Arrival]] = OrderedDict()  # by the newest arrival, oldest first

    def __len__(self) -> int:
        """Classes of which a start is known."""
        return len(self._known)

    def note(self, key: ClassKey, claimed: bool, now: float) -> None:
        """A replica of a revision of that class started."""
        self._known.setdefault(key, deque(maxlen=KEPT)).append(Arrival(now, claimed))
        self._known.move_to_end(key)
        self._expire(now)

    def of(self, key: ClassKey, now: float) -> tuple[Arrival, ...]:
        """Those of the last hour, oldest first."""
        known = self._known.get(key, ())
        return tuple(arrival for arrival in known if arrival.at > now - HORIZON)

    def carry_over(self, before: ClassKey, after: ClassKey) -> None:
        """A pool's template changed: what was of its former class will be of the present one."""
        both = (*self._known.pop(before, ()), *self._known.get(after, ()))
        if both:
            self._known[after] = deque(sorted(both, key=lambda arrival: arrival.at), maxlen=KEPT)

    def _expire(self, now: float) -> None:
        while self._known:
            key, arrivals = next(iter(self._known.items()))
            if arrivals[-1].at > now - HORIZON:
                return
            del self._known[key]
