"""Knodel's policy in the simulation: the autoscaler's `MultiScaler`, with the readings that the collector would
provide.

The activator is always in the path: it triggers a decision when a request is queued, and holds all queued requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from autoscaler.config import AutoscalerSettings
from autoscaler.metrics.collector import RevisionReading
from autoscaler.reconciler.spec import make_revision_spec
from autoscaler.scaling.multi_scaler import MultiScaler
from autoscaler.types import CLASS, MAX_REPLICAS, POLICY_ANNOTATION, Policy
from clusters.base.objects import ANNOTATION_CLASS, Key
from loadtests.simulate.scaler import Seen

KEY = Key("default", "simulated")
LAUNCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _AtActivator:
    queued: int = 0
    active: int = 0


class Knodel:
    """One revision. `wishes` are fields of a Model's scaling policy with other values than their defaults."""

    def __init__(
        self, slots: int, wishes: Mapping[str, Any] | None = None, settings: AutoscalerSettings | None = None
    ) -> None:
        """Create the revision. Raises InvalidPolicy that names every invalid field."""
        settings = settings or AutoscalerSettings()
        self.tick = settings.sampling.tick
        self._load = _AtActivator()
        self._scaler = MultiScaler(settings, lambda key: self._load)
        self._scaler.set_spec(KEY, _columns(slots, wishes or {}, settings))
        self._last = Seen(0.0, 0, 0, 0, 0)

    def look(self, seen: Seen) -> int:
        """Do the work of one tick: read the replicas, then decide."""
        self._count(seen)
        if seen.ready and seen.now > self._last.now:
            self._scaler.observe({KEY: self._reading(seen)}, [KEY], seen.now)
        self._last = seen
        return self._decide(seen)

    def wake(self, seen: Seen) -> int:
        """Decide at once."""
        self._count(seen)
        return self._decide(seen)

    def counted(self, seen: Seen) -> None:
        """Update the replicas, as the reconciler does when the Deployment's status changes."""
        self._count(seen)

    def started(self, seconds: float) -> None:
        """Record a measured cold start."""
        self._scaler.record_start(KEY, seconds)

    def _count(self, seen: Seen) -> None:
        self._load.queued, self._load.active = seen.queued, seen.in_flight
        self._scaler.set_replicas(KEY, seen.current, seen.ready, seen.now)

    def _decide(self, seen: Seen) -> int:
        self._scaler.decide([KEY], seen.now)
        desired = self._scaler.desired(KEY)
        return desired if desired or not seen.in_flight else max(1, seen.current)  # the last check before zero

    def _reading(self, seen: Seen) -> RevisionReading:
        """Return the reading since the last tick, as the collector would derive it from the replicas' totals."""
        served = max(0.0, seen.busy_seconds - self._last.busy_seconds)
        answered = seen.answered - self._last.answered
        return RevisionReading(
            work=served / (seen.now - self._last.now),
            missing=0.0,
            served=served,
            requests=float(answered),
            busy=seen.in_flight > 0 or answered > 0,
            complete=True,
        )


def _columns(slots: int, wishes: Mapping[str, Any], settings: AutoscalerSettings) -> Mapping[str, float | int | bool]:
    """Return the row of a PodAutoscaler with these fields that was ready once, with the maximum number of replicas."""
    said = {"maxReplicas": MAX_REPLICAS, "scaleTarget": slots, **wishes}
    annotations = {ANNOTATION_CLASS: CLASS, POLICY_ANNOTATION: json.dumps(said)}
    pod_autoscaler = {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace, "annotations": annotations},
        "spec": {},
    }
    wanted = make_revision_spec(pod_autoscaler, Policy.from_annotations(annotations), settings.zero, LAUNCH)
    return {**wanted.columns, "initialized": True}
