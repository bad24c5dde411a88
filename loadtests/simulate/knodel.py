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
from loadtests.simulate.scaler import RevisionState

KEY = Key("default", "simulated")
LAUNCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _AtActivator:
    queued: Any = 0  # a fraction for a policy that weighs requests
    active: int = 0


class Knodel:
    """One revision. `overrides` sets fields of the Model's scaling policy that differ from their defaults."""

    def __init__(
        self, slots: int, overrides: Mapping[str, Any] | None = None, settings: AutoscalerSettings | None = None
    ) -> None:
        """Create the revision. Raises InvalidPolicy with all invalid fields."""
        settings = settings or AutoscalerSettings()
        self.tick = settings.sampling.tick
        self._load = _AtActivator()
        self._scaler = MultiScaler(settings, lambda key: self._load)
        self._scaler.set_spec(KEY, _columns(slots, overrides or {}, settings))
        self._last = RevisionState(0.0, 0, 0, 0, 0)

    def decide_at_tick(self, state: RevisionState) -> int:
        """Run one tick: read the replicas, then decide."""
        self._count(state)
        if state.ready and state.now > self._last.now:
            self._scaler.observe({KEY: self._reading(state)}, [KEY], state.now)
        self._last = state
        return self._decide(state)

    def decide_on_queue_change(self, state: RevisionState) -> int:
        """Decide at once."""
        self._count(state)
        return self._decide(state)

    def observe_replicas(self, state: RevisionState) -> None:
        """Update the replicas, as the reconciler does when the Deployment's status changes."""
        self._count(state)

    def record_start(self, seconds: float) -> None:
        """Record a measured cold start."""
        self._scaler.record_start(KEY, seconds)

    def _count(self, state: RevisionState) -> None:
        self._load.queued, self._load.active = state.queued, state.in_flight
        self._scaler.set_replicas(KEY, state.current, state.ready, state.now)

    def _decide(self, state: RevisionState) -> int:
        self._scaler.decide([KEY], state.now)
        desired = self._scaler.desired(KEY)
        # Keep the replicas of running requests, like the last check before scale to zero.
        return desired if desired or not state.in_flight else max(1, state.current)

    def _reading(self, state: RevisionState) -> RevisionReading:
        """Return the reading since the last tick, as the collector would derive it from the replicas' totals."""
        served = max(0.0, state.busy_seconds - self._last.busy_seconds)
        answered = state.answered - self._last.answered
        return RevisionReading(
            work=served / (state.now - self._last.now),
            missing=0.0,
            served=served,
            requests=float(answered),
            busy=state.in_flight > 0 or answered > 0,
            complete=True,
            crowd=state.crowd,
        )


def _columns(
    slots: int, overrides: Mapping[str, Any], settings: AutoscalerSettings
) -> Mapping[str, float | int | bool]:
    """Return the row of a PodAutoscaler with these fields that was ready once, with the maximum number of replicas."""
    policy = {"maxReplicas": MAX_REPLICAS, "scaleTarget": slots, **overrides}
    annotations = {ANNOTATION_CLASS: CLASS, POLICY_ANNOTATION: json.dumps(policy)}
    pod_autoscaler = {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace, "annotations": annotations},
        "spec": {},
    }
    wanted = make_revision_spec(pod_autoscaler, Policy.from_annotations(annotations), settings.zero, LAUNCH)
    return {**wanted.columns, "initialized": True}
