"""What keeps models warm, for tests that play the decider: start times and waiting requests are what the test says."""

from __future__ import annotations

from dataclasses import dataclass, field

from autoscaler.config import Scaling
from autoscaler.metrics.source import LoadView
from autoscaler.warmpool.sizing.keep_warm import KeepWarm
from clusters.base.clock import Clock
from clusters.base.objects import Key

START_TIME = 30.0
"""s of a cold start."""


@dataclass(frozen=True, slots=True)
class Load:
    """So many requests wait at the activator."""

    queued: int = 0
    active: int = 0


@dataclass(slots=True)
class Decider:
    """What `KeepWarm` asks of the decider, and tells it."""

    queued: dict[Key, int] = field(default_factory=dict)
    start_times: dict[Key, float] = field(default_factory=dict)
    changed: list[Key] = field(default_factory=list)

    def load(self, key: Key) -> LoadView:
        """What waits for the revision."""
        return Load(self.queued.get(key, 0))

    def start_time(self, key: Key) -> float:
        """Seconds of its cold starts."""
        return self.start_times.get(key, START_TIME)


def keep_warm(clock: Clock, decider: Decider | None = None) -> KeepWarm:
    """Beside that decider, or one of whom nothing is heard."""
    decider = decider or Decider()
    return KeepWarm(clock, Scaling(), start_time=decider.start_time, load=decider.load, changed=decider.changed.append)
