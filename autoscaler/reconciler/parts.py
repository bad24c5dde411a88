"""What passes over PodAutoscalers work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from autoscaler.config import Settings
from autoscaler.metrics.collector import Collector
from autoscaler.metrics.source import ActivatorLoad
from autoscaler.reconciler.digests import Digests
from autoscaler.reconciler.notes import Notes
from autoscaler.reconciler.observed import View
from autoscaler.reconciler.progress import Progress
from autoscaler.reconciler.scale_to_zero import ScaleToZero
from autoscaler.reconciler.silences import Silences
from autoscaler.reconciler.starts import Starts
from autoscaler.scaling.fleet import Fleet
from autoscaler.usage.ledger import Ledger
from autoscaler.warmpool.sizing.keeper import Hold
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.objects import Key, Object
from clusters.runtime.recorder import Recorder


class WarmStarts(Protocol):
    """Replicas out of warm pools (`warmpool/claims.py`)."""

    async def begin(self, key: Key, deployment: Object, wanted: int, digest: str = "") -> int:
        """Have members serve for this Deployment, which is to have `wanted` replicas; how many do so now."""
        ...

    def note(self, key: Key, deployment: Object, started: int, claimed: int) -> None:
        """So many replicas were asked for just now, of which so many serve already."""
        ...

    def follow(self, key: Key, deployment: Object, set_to: float | None) -> Hold | None:
        """The revision may go to zero, after `set_to` seconds where somebody said so; the hold of its pool's plan."""
        ...

    def unfollow(self, key: Key) -> None:
        """The revision does not go to zero for the present."""
        ...

    async def finish(self, key: Key, deployment: Object) -> float | None:
        """Have members that serve adopted, or undone; seconds until the next look, or None."""
        ...

    def forget(self, key: Key) -> None:
        """The revision is gone."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What the reconciler works with; the composition root of this package makes them."""

    cluster: Cluster
    view: View
    fleet: Fleet
    collector: Collector
    activator: ActivatorLoad
    scale_to_zero: ScaleToZero
    notes: Notes
    progress: Progress
    starts: Starts
    warm: WarmStarts
    silences: Silences
    recorder: Recorder
    clock: Clock
    settings: Settings
    hears: Callable[[], bool]  # of requests that wait at zero
    ledger: Ledger
    digests: Digests
