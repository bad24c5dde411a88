"""The conditions of a Model: they move only through the named transitions here.

Ready                 True when the three below are, else with the reason of the first that is not
├── ObjectsApplied      what the Model asks for stands in the cluster
├── ConfigurationsReady the newest version is ready, in all its variants
└── RoutesReady         the split in force was seen at the gateway
TrafficPinned         only while `spec.traffic` decides: what it says; no part of Ready
RolloutHeld           only while the judge of a rollout cannot go on: why; no part of Ready
ReplicasStarted       only while a replica does not start: False with the reason; no part of Ready, others may serve
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, NamedTuple

from clusters.base.objects import Object, with_condition

READY = "Ready"
OBJECTS_APPLIED = "ObjectsApplied"
CONFIGURATIONS_READY = "ConfigurationsReady"
ROUTES_READY = "RoutesReady"
TRAFFIC_PINNED = "TrafficPinned"
ROLLOUT_HELD = "RolloutHeld"
REPLICAS_STARTED = "ReplicasStarted"
DEPENDENTS = (OBJECTS_APPLIED, CONFIGURATIONS_READY, ROUTES_READY)

Status = Literal["True", "False", "Unknown"]


class State(NamedTuple):
    """What a condition says."""

    status: Status
    reason: str = ""
    message: str = ""


GOOD = State("True")
DEPLOYING = "Deploying"
"""Reason while nothing is wrong and something is under way."""
RECOVERING = "Recovering"
"""Reason of ConfigurationsReady while the newest version fails after it was ready: its replicas are started again, and
no deploy has failed for good."""


class Lifecycle:
    """The conditions of one Model in one pass; `lastTransitionTime` survives where the status does."""

    def __init__(self, former: Iterable[Object], now: datetime) -> None:
        self._former = list(former)
        self._now = now
        self._states: dict[str, State] = {name: State("Unknown", DEPLOYING, "not looked at yet") for name in DEPENDENTS}

    def mark_invalid(self, message: str) -> None:
        """The Model cannot be read: nothing of it is carried out."""
        self._states = {OBJECTS_APPLIED: State("False", "InvalidSpec", message)}

    def mark_broken(self, message: str) -> None:
        """The platform fails at the Model: how far it was carried out nobody knows."""
        self._states = {OBJECTS_APPLIED: State("False", "ReconcileFailed", message)}

    def mark_objects_applied(self) -> None:
        """All objects stand."""
        self._states[OBJECTS_APPLIED] = GOOD

    def mark_objects_waiting(self, message: str) -> None:
        """Something must go before our objects can come."""
        self._states[OBJECTS_APPLIED] = State("Unknown", DEPLOYING, message)

    def mark_objects_refused(self, reason: str, message: str) -> None:
        """The cluster does not take what the Model asks for."""
        self._states[OBJECTS_APPLIED] = State("False", reason, message)

    def mark_not_owned(self, message: str) -> None:
        """An object in our way belongs to somebody else."""
        self._states[OBJECTS_APPLIED] = State("False", "NotOwned", message)

    def mark_configurations(self, state: State) -> None:
        """How the newest version is."""
        self._states[CONFIGURATIONS_READY] = state

    def mark_routes(self, state: State) -> None:
        """How the traffic is."""
        self._states[ROUTES_READY] = state

    def mark_revision_missing(self, message: str) -> None:
        """`spec.traffic` names what does not exist: the split stays as it is."""
        self._states[ROUTES_READY] = State("False", "RevisionMissing", message)

    def mark_traffic_pinned(self, message: str) -> None:
        """`spec.traffic` decides who gets what."""
        self._states[TRAFFIC_PINNED] = State("True", "SpecTraffic", message)

    def mark_rollout_held(self, reason: str, message: str) -> None:
        """Record why the judge of a rollout lets no step pass."""
        self._states[ROLLOUT_HELD] = State("True", reason, message)

    def mark_replica_waiting(self, reason: str, message: str) -> None:
        """A replica does not start, of whichever version."""
        self._states[REPLICAS_STARTED] = State("False", reason, message)

    def conditions(self) -> list[Object]:
        """All conditions, with Ready."""
        states = {**self._states, READY: self._ready()}
        former = [condition for condition in self._former if condition["type"] in states]
        for name, state in states.items():
            former = with_condition(former, name, state.status, self._now, state.reason, state.message)
        return former

    def _ready(self) -> State:
        """The most severe of the dependents; of equals the first."""
        states = [self._states[name] for name in DEPENDENTS if name in self._states]
        for severity in ("False", "Unknown"):
            for state in states:
                if state.status == severity:
                    return state
        return GOOD
