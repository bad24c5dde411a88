"""What a scaling policy sees in a simulation, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Seen:
    """The revision at one moment. The last three count from the start of the run on.

    `current` replicas are asked for, of which `ready` take requests; `queued` requests wait, `in_flight` are worked on.
    `busy_seconds`: slot-seconds in replicas that take requests; `held_seconds`: seconds that requests spent waiting
    or worked on, added up; `answered` requests.
    """

    now: float
    current: int
    ready: int
    queued: int
    in_flight: int
    busy_seconds: float = 0.0
    held_seconds: float = 0.0
    answered: int = 0


class Scaler(Protocol):
    """Answers with the number of replicas to have from now on."""

    tick: float
    """Seconds between two looks."""

    def look(self, seen: Seen) -> int:
        """It is time to look, at a multiple of `tick`. Skipped while there is no replica and no request."""
        ...

    def wake(self, seen: Seen) -> int:
        """The queue has become empty or non-empty, just now."""
        ...

    def counted(self, seen: Seen) -> None:
        """Replicas were asked for, or became ready."""
        ...

    def started(self, seconds: float) -> None:
        """A replica became ready, `seconds` after it was asked for, from nothing; a first one before the trace."""
        ...
