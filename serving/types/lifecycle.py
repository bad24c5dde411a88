"""The conditions of a Model. They change only through the methods of `Lifecycle`.

Ready                 True when the three below are, else with the reason of the first that is not
├── ObjectsApplied      the Model's objects are in the cluster as specified
├── ConfigurationsReady the newest version is ready, in all its variants
└── RoutesReady         the present traffic split was observed at the gateway
TrafficPinned         only while `spec.traffic` sets the traffic; not part of Ready
RolloutHeld           only while the judge holds a rollout, with the reason; not part of Ready
AdaptersReady         only of a language model that loads adapters while it serves; not part of Ready, the model serves
WorkersReady          only for models with workers: the worst state of the groups of their replicas; not part of Ready
ReplicasStarted       only while a replica does not start: False with the reason; not part of Ready, others may serve
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
ADAPTERS_READY = "AdaptersReady"
WORKERS_READY = "WorkersReady"
DEPENDENTS = (OBJECTS_APPLIED, CONFIGURATIONS_READY, ROUTES_READY)

Status = Literal["True", "False", "Unknown"]


class State(NamedTuple):
    """Status, reason and message of a condition."""

    status: Status
    reason: str = ""
    message: str = ""


GOOD = State("True")
DEPLOYING = "Deploying"
"""Reason while a change is in progress, without failures."""
RECOVERING = "Recovering"
"""Reason of ConfigurationsReady while the newest version fails after it was ready. Its replicas restart, and the deploy
has not failed."""


class Lifecycle:
    """The conditions of one Model in one pass. `lastTransitionTime` is kept while the status of a condition is."""

    def __init__(self, former: Iterable[Object], now: datetime) -> None:
        self._former = list(former)
        self._now = now
        self._states: dict[str, State] = {name: State("Unknown", DEPLOYING, "not observed yet") for name in DEPENDENTS}

    def mark_invalid(self, message: str) -> None:
        """Report an invalid Model, for which nothing was applied."""
        self._states = {OBJECTS_APPLIED: State("False", "InvalidSpec", message)}

    def mark_broken(self, message: str) -> None:
        """Report a bug of the platform while it reconciled the Model. What was applied is unknown."""
        self._states = {OBJECTS_APPLIED: State("False", "ReconcileFailed", message)}

    def mark_objects_applied(self) -> None:
        """Report that all objects are applied."""
        self._states[OBJECTS_APPLIED] = GOOD

    def mark_objects_waiting(self, message: str) -> None:
        """Report that other objects must be deleted before the Model's objects can be created."""
        self._states[OBJECTS_APPLIED] = State("Unknown", DEPLOYING, message)

    def mark_objects_refused(self, reason: str, message: str) -> None:
        """Report that the cluster or the platform refuses the Model's objects."""
        self._states[OBJECTS_APPLIED] = State("False", reason, message)

    def mark_not_owned(self, message: str) -> None:
        """Report that an object with a needed name has another owner."""
        self._states[OBJECTS_APPLIED] = State("False", "NotOwned", message)

    def mark_configurations(self, state: State) -> None:
        """Set the state of the newest version."""
        self._states[CONFIGURATIONS_READY] = state

    def mark_routes(self, state: State) -> None:
        """Set the state of the traffic."""
        self._states[ROUTES_READY] = state

    def mark_revision_missing(self, message: str) -> None:
        """Report that `spec.traffic` has a revision that does not exist. The former split stays."""
        self._states[ROUTES_READY] = State("False", "RevisionMissing", message)

    def mark_traffic_pinned(self, message: str) -> None:
        """Report that `spec.traffic` sets the traffic."""
        self._states[TRAFFIC_PINNED] = State("True", "SpecTraffic", message)

    def mark_rollout_held(self, reason: str, message: str) -> None:
        """Report why the judge holds a rollout."""
        self._states[ROLLOUT_HELD] = State("True", reason, message)

    def mark_replica_waiting(self, reason: str, message: str) -> None:
        """Report why a replica of any version does not start."""
        self._states[REPLICAS_STARTED] = State("False", reason, message)

    def mark_adapters(self, state: State) -> None:
        """Set whether all replicas serve the adapters of their version."""
        self._states[ADAPTERS_READY] = state

    def mark_workers(self, state: State) -> None:
        """Set the state of the workers of all replicas."""
        self._states[WORKERS_READY] = state

    def conditions(self) -> list[Object]:
        """Return all conditions, with Ready."""
        states = {**self._states, READY: self._ready()}
        former = [condition for condition in self._former if condition["type"] in states]
        for name, state in states.items():
            former = with_condition(former, name, state.status, self._now, state.reason, state.message)
        return former

    def _ready(self) -> State:
        """Return the most severe state of the dependent conditions; the first of equal ones."""
        states = [self._states[name] for name in DEPENDENTS if name in self._states]
        for severity in ("False", "Unknown"):
            for state in states:
                if state.status == severity:
                    return state
        return GOOD
