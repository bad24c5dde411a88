"""Replicas that were asked for and that their Deployment does not show yet, so that nothing is asked for twice.

A claimed member serves before anything owns it. What follows (scale, adoption, reports) takes the processor from the
models that are loaded just now, for which somebody waits. So it has its turn when no claim was made for a moment.
"""

from __future__ import annotations

from typing import Final

from clusters.base.objects import Key

CLAIM_FIRST: Final = 0.3
"""s since the last claim of any revision; within it a small model is loaded and has answered, on Kubernetes too."""
LONGEST: Final = 1.0
"""s since the revision's own; a member that nobody owns is undone when its claimer has died."""


class Asked:
    """By revision: how many, and since when (monotonic seconds) where all that were new came by claims."""

    def __init__(self) -> None:
        self._asked: dict[Key, tuple[int, float | None]] = {}
        self._last_claim = 0.0

    def replicas(self, key: Key) -> int:
        """How many were asked for, 0 when the Deployment shows all."""
        return self._asked.get(key, (0, None))[0]

    def left(self, key: Key, now: float) -> float:
        """Seconds until the Deployment is to be scaled; 0 or less for now."""
        _, since = self._asked.get(key, (0, None))
        return 0.0 if since is None else min(self._last_claim + CLAIM_FIRST, since + LONGEST) - now

    def ask(self, key: Key, replicas: int, now: float, *, served: bool) -> None:
        """So many are wanted; `served`: all that are new came by claims."""
        self._asked[key] = (replicas, now if served else None)
        if served:
            self._last_claim = now

    def forget(self, key: Key) -> None:
        """The Deployment shows them, or nobody wants them any more."""
        self._asked.pop(key, None)
