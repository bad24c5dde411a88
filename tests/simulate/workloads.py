"""Workloads of a few requests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadtests.simulate.scaler import Seen
from loadtests.simulate.workload import Workload


def workload(
    arrivals: Sequence[float], service: float | Sequence[float] = 1.0, *, slots: int = 1, start: float = 1.0
) -> Workload:
    """Requests at these seconds, each of as many seconds of service."""
    times = np.array(arrivals, dtype=np.float64)
    return Workload("a few", times, np.broadcast_to(np.array(service, np.float64), times.shape).copy(), slots, start)


class Steps:
    """A scaler that follows a list of (second, replicas from then on), at its looks and wakes."""

    tick = 1.0

    def __init__(self, *steps: tuple[float, int]) -> None:
        self._steps = steps
        self.seen: list[Seen] = []
        self.starts: list[float] = []

    def look(self, seen: Seen) -> int:
        """Where the list is now."""
        self.seen.append(seen)
        return [replicas for at, replicas in self._steps if at <= seen.now][-1]

    def wake(self, seen: Seen) -> int:
        """As a look."""
        return self.look(seen)

    def counted(self, seen: Seen) -> None:
        """Nothing to remember."""

    def started(self, seconds: float) -> None:
        """Remembers it."""
        self.starts.append(seconds)
