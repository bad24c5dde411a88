"""Delay the refill of a pool after a claim.

A claimed member loads its model for a waiting caller; the start of a new member would take its processor.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from autoscaler.warmpool.claims.marks import LABEL_POOL
from autoscaler.warmpool.claims.pods import is_claimed
from clusters.base.clock import Clock
from clusters.base.objects import Key, Object, labels_of, namespace_of
from clusters.runtime.informer import Informer

QUIET_TIME: Final = 0.25
"""Seconds after the last claim. Within that time a small model is loaded and has answered."""
LONGEST: Final = 1.0
"""Seconds after the first claim: the pool must be refilled even if claims never stop."""


@dataclass(slots=True)
class Debounce:
    """The times of a pool's claims, by the monotonic clock."""

    first: float | None = None
    last: float = 0.0

    def record(self, now: float) -> None:
        """Record a claim."""
        self.first = now if self.first is None else self.first
        self.last = now

    def remaining(self, now: float) -> float:
        """Return the seconds until members may be started, 0 for now."""
        if self.first is None:
            return 0.0
        left = min(self.last + QUIET_TIME, self.first + LONGEST) - now
        if left <= 0:
            self.first = None
        return max(0.0, left)


class ClaimDebounce:
    """The debounces of all pools, from Pod events. At the next pass, a claimed member may already have left its
    pool.
    """

    def __init__(self, pods: Informer, clock: Clock) -> None:
        self._clock = clock
        self._debounces: defaultdict[Key, Debounce] = defaultdict(Debounce)
        pods.subscribe(self._observe)

    def remaining(self, pool: Key) -> float:
        """Return the seconds until the pool's members may be started, 0 for now."""
        return self._debounces[pool].remaining(self._clock.monotonic())

    def forget(self, pool: Key) -> None:
        """Delete a pool that is gone."""
        self._debounces.pop(pool, None)

    def _observe(self, before: Object | None, after: Object | None) -> None:
        if before is None or after is None or is_claimed(before) or not is_claimed(after):
            return
        if name := labels_of(after).get(LABEL_POOL):
            self._debounces[Key(namespace_of(after), name)].record(self._clock.monotonic())
