"""When a pool may be filled again after a claim: a moment later.

A member that was claimed loads its model, and somebody waits for it; a new member's start would take its processor.
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

CALM: Final = 0.25
"""s after the last claim; within it a small model is loaded and has answered."""
LONGEST: Final = 1.0
"""s after the first one: where claims come all the time, the pool is to be filled none the less."""


@dataclass(slots=True)
class Calm:
    """When the claims of a pool were seen, by the monotonic clock."""

    first: float | None = None
    last: float = 0.0

    def claimed(self, now: float) -> None:
        """A member was claimed."""
        self.first = now if self.first is None else self.first
        self.last = now

    def left(self, now: float) -> float:
        """Seconds until members may be started, 0 for at once."""
        if self.first is None:
            return 0.0
        left = min(self.last + CALM, self.first + LONGEST) - now
        if left <= 0:
            self.first = None
        return max(0.0, left)


class Calms:
    """Of all pools, from what is written on their members; by the next pass a member may have left its pool."""

    def __init__(self, pods: Informer, clock: Clock) -> None:
        self._clock = clock
        self._calms: defaultdict[Key, Calm] = defaultdict(Calm)
        pods.subscribe(self._note)

    def left(self, pool: Key) -> float:
        """Seconds until its members may be started, 0 for at once."""
        return self._calms[pool].left(self._clock.monotonic())

    def forget(self, pool: Key) -> None:
        """The pool is gone."""
        self._calms.pop(pool, None)

    def _note(self, before: Object | None, after: Object | None) -> None:
        if before is None or after is None or is_claimed(before) or not is_claimed(after):
            return
        if name := labels_of(after).get(LABEL_POOL):
            self._calms[Key(namespace_of(after), name)].claimed(self._clock.monotonic())
