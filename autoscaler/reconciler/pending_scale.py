"""Replicas that were requested and are not in the informer's Deployment yet, so that no replica is requested twice.

A claimed member serves before its Deployment owns it. The following writes (scale, adoption, status) would take the
processor from models that are being loaded for waiting callers. Therefore they are delayed until no claim was made for
a moment.

The replicas are not written yet, so they cannot be in `clusters.runtime.own_writes`, which records answers of the
cluster."""

from __future__ import annotations

from typing import Final

from clusters.base.objects import Key

CLAIM_FIRST: Final = 0.3
"""Seconds since the last claim of any revision. Within that time a small model is loaded and has answered, also on
Kubernetes.
"""
LONGEST: Final = 1.0
"""Seconds since the revision's own claim. A member without an owner is undone after its claimer has died."""


class PendingScale:
    """Requested replicas by revision, and since when they are delayed (monotonic seconds), if all new ones are
    claims.
    """

    def __init__(self) -> None:
        self._replicas: dict[Key, tuple[int, float | None]] = {}
        self._last_claim = 0.0

    def replicas(self, key: Key) -> int:
        """Return the requested replicas, 0 when the Deployment shows all of them."""
        return self._replicas.get(key, (0, None))[0]

    def delay(self, key: Key, now: float) -> float:
        """Return the seconds until the Deployment must be scaled; 0 or less for now."""
        _, since = self._replicas.get(key, (0, None))
        return 0.0 if since is None else min(self._last_claim + CLAIM_FIRST, since + LONGEST) - now

    def record(self, key: Key, replicas: int, now: float, *, served: bool) -> None:
        """Record the requested replicas; `served`: all new ones are claimed members."""
        self._replicas[key] = (replicas, now if served else None)
        if served:
            self._last_claim = now

    def forget(self, key: Key) -> None:
        """Delete the entry: the Deployment shows the replicas, or they are no longer needed."""
        self._replicas.pop(key, None)
