"""A `KeepWarm` for tests that play the decider and set start times and queued requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from autoscaler.config import DecisionSettings
from autoscaler.metrics.source import LoadView
from autoscaler.warmpool.sizing.keep_warm import KeepWarm
from clusters.base.clock import Clock
from clusters.base.objects import Key

START_TIME = 30.0
"""s of a cold start."""


@dataclass(frozen=True, slots=True)
class Load:
    """The number of requests queued at the activator."""

    queued: int = 0
    active: int = 0


@dataclass(slots=True)
class Decider:
    """The decider's interface for `KeepWarm`."""

    queued: dict[Key, int] = field(default_factory=dict)
    start_times: dict[Key, float] = field(default_factory=dict)
    changed: list[Key] = field(default_factory=list)

    def load(self, key: Key) -> LoadView:
        """Return the revision's requests."""
        return Load(self.queued.get(key, 0))

    def start_time(self, key: Key) -> float:
        """Return the seconds of its cold starts."""
        return self.start_times.get(key, START_TIME)


def keep_warm(clock: Clock, decider: Decider | None = None) -> KeepWarm:
    """Return a `KeepWarm` with this decider, or with an idle one."""
    decider = decider or Decider()
    return KeepWarm(
        clock, DecisionSettings(), start_time=decider.start_time, load=decider.load, changed=decider.changed.append
    )
