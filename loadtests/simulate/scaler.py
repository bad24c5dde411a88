"""The interface of a scaling policy in a simulation: its inputs and its decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RevisionState:
    """The state of the revision at one time.

    `busy_seconds`, `held_seconds` and `answered` are totals since the start of the run.
    `current` replicas are desired, of which `ready` accept requests; `queued` requests wait, `in_flight` are being
    processed. `busy_seconds`: slot-seconds in ready replicas; `held_seconds`: total seconds that requests were queued
    or processed; `answered`: requests. A policy that weighs requests receives the weights of queued and answered ones.
    `crowd`: slots used or waited for in replicas in which requests wait, as in a `RevisionReading`.
    """

    now: float
    current: int
    ready: int
    queued: float
    in_flight: int
    busy_seconds: float = 0.0
    held_seconds: float = 0.0
    answered: float = 0.0
    crowd: float = 0.0


class Scaler(Protocol):
    """A scaling policy. Its decisions are numbers of replicas."""

    tick: float
    """Seconds between two calls of `decide_at_tick`."""

    def decide_at_tick(self, state: RevisionState) -> int:
        """Decide at a multiple of `tick`. Skipped while there is no replica and no request."""
        ...

    def decide_on_queue_change(self, state: RevisionState) -> int:
        """Decide after the queue became empty or non-empty."""
        ...

    def observe_replicas(self, state: RevisionState) -> None:
        """Update the replicas: some were requested, or became ready."""
        ...

    def record_start(self, seconds: float) -> None:
        """Record a cold start of `seconds`. The first one occurs before the trace."""
        ...
