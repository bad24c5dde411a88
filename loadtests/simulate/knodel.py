"""Knodel's own policy in the simulation: the very `Fleet` that the autoscaler runs, fed with what it would read.

The activator is in the path all the time: it wakes the decider when somebody waits, and holds all that wait.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from autoscaler.config import Settings
from autoscaler.metrics.collector import Reading
from autoscaler.reconciler.spec import make_wishes
from autoscaler.scaling.fleet import Fleet
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
    """One revision. `wishes` are fields of a Model's scaling policy that are not to have their defaults."""

    def __init__(self, slots: int, wishes: Mapping[str, Any] | None = None, settings: Settings | None = None) -> None:
        """Raises InvalidPolicy naming every wish that is refused."""
        settings = settings or Settings()
        self.tick = settings.sampling.tick
        self._load = _AtActivator()
        self._fleet = Fleet(settings, lambda key: self._load)
        self._fleet.set_spec(KEY, _columns(slots, wishes or {}, settings))
        self._last = Seen(0.0, 0, 0, 0, 0)

    def look(self, seen: Seen) -> int:
        """What an autoscaler does in a tick: read the replicas, then decide."""
        self._count(seen)
        if seen.ready and seen.now > self._last.now:
            self._fleet.observe({KEY: self._reading(seen)}, [KEY], seen.now)
        self._last = seen
        return self._decide(seen)

    def wake(self, seen: Seen) -> int:
        """Decide at once."""
        self._count(seen)
        return self._decide(seen)

    def counted(self, seen: Seen) -> None:
        """What the reconciler does when the Deployment's status changes."""
        self._count(seen)

    def started(self, seconds: float) -> None:
        """A cold start was measured."""
        self._fleet.started(KEY, seconds)

    def _count(self, seen: Seen) -> None:
        self._load.queued, self._load.active = seen.queued, seen.in_flight
        self._fleet.set_replicas(KEY, seen.current, seen.ready, seen.now)

    def _decide(self, seen: Seen) -> int:
        self._fleet.decide([KEY], seen.now)
        desired = self._fleet.desired(KEY)
        return desired if desired or not seen.in_flight else max(1, seen.current)  # the last look before zero

    def _reading(self, seen: Seen) -> Reading:
        """Of the time since the last look, as the collector would have it from the replicas' totals."""
        served = max(0.0, seen.busy_seconds - self._last.busy_seconds)
        answered = seen.answered - self._last.answered
        return Reading(
            work=served / (seen.now - self._last.now),
            missing=0.0,
            served=served,
            requests=float(answered),
            busy=seen.in_flight > 0 or answered > 0,
            complete=True,
        )


def _columns(slots: int, wishes: Mapping[str, Any], settings: Settings) -> Mapping[str, float | int | bool]:
    """The row of a PodAutoscaler that was ready once and asks for these things; as many replicas as one may have."""
    said = {"maxReplicas": MAX_REPLICAS, "scaleTarget": slots, **wishes}
    annotations = {ANNOTATION_CLASS: CLASS, POLICY_ANNOTATION: json.dumps(said)}
    pod_autoscaler = {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace, "annotations": annotations},
        "spec": {},
    }
    wanted = make_wishes(pod_autoscaler, Policy.from_annotations(annotations), settings.zero, LAUNCH)
    return {**wanted.spec, "initialized": True}
