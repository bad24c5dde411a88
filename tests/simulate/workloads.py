"""Workloads of a few requests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadtests.simulate.scaler import RevisionState
from loadtests.simulate.workload import Workload


def workload(
    arrivals: Sequence[float], service: float | Sequence[float] = 1.0, *, slots: int = 1, start: float = 1.0
) -> Workload:
    """Return requests at these seconds, with these seconds of service."""
    times = np.array(arrivals, dtype=np.float64)
    return Workload("a few", times, np.broadcast_to(np.array(service, np.float64), times.shape).copy(), slots, start)


class Steps:
    """A scaler that follows a list of (second, replicas from then on), at every decision."""

    tick = 1.0

    def __init__(self, *steps: tuple[float, int]) -> None:
        self._steps = steps
        self.states: list[RevisionState] = []
        self.starts: list[float] = []

    def decide_at_tick(self, state: RevisionState) -> int:
        """Return the current entry of the list."""
        self.states.append(state)
        return [replicas for at, replicas in self._steps if at <= state.now][-1]

    def decide_on_queue_change(self, state: RevisionState) -> int:
        """Return the current entry of the list."""
        return self.decide_at_tick(state)

    def observe_replicas(self, state: RevisionState) -> None:
        """Ignore the event."""

    def record_start(self, seconds: float) -> None:
        """Record the duration."""
        self.starts.append(seconds)
