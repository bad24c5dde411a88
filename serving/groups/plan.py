"""Plan the worker Pods of one leader: which are created and deleted now, and the group's state. Pure.

A group is a leader's Pod, which Knative creates and deletes as every replica, and `count` worker Pods with the ranks 1
to `count`. Workers do not restart: one that ends has lost its place in the group, and another Pod takes it. By row from
the top, the first that applies:

    the leader is being deleted                nothing: the workers go with it (ownerReference)
    the leader has ended                       delete them: its Pod may stay for days
    the leader has no address yet              nothing
    workers of a former start of the leader    delete them: they wait for a process that is gone
    the leader's server has ended              delete those that have ended; it starts again, and then all are replaced
    a worker is lost, onLoss: restart          delete all workers; create none while one of them is left
    a worker is lost, onLoss: tolerate         delete it if it has ended
    ranks without a Pod                        create them, once the back-off is over

A worker is lost when its Pod has ended, is being deleted, or is gone while another one of its group runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from serving.types.lifecycle import GOOD, State
from serving.types.workers import Workers

STARTING = "WorkersStarting"
"""Reason while workers start, without failures."""
LOST = "WorkerLost"
"""Reason while a lost worker is being replaced."""


class Phase(Enum):
    """The phase of a worker's Pod."""

    WAITING = "waiting"
    RUNNING = "running"
    READY = "ready"
    ENDED = "ended"
    DELETED = "deleted"
    """It is being deleted, and its process may still run."""


@dataclass(frozen=True, slots=True)
class Leader:
    """A leader's Pod.

    `start` counts the restarts of its server's container. `ending` is whether the Pod is being deleted, `ended` whether
    all of its containers have ended for good, and `crashed` whether its server has ended and will start again.
    """

    name: str
    address: str
    start: int = 0
    ending: bool = False
    ended: bool = False
    crashed: bool = False


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker's Pod.

    `start` is the start of the leader for which it was created. `reason` and `message` are why it waits or has ended,
    as far as that is known.
    """

    name: str
    rank: int
    phase: Phase
    start: int = 0
    reason: str = ""
    message: str = ""

    @property
    def works(self) -> bool:
        """Whether its process runs and its Pod is not being deleted."""
        return self.phase in (Phase.RUNNING, Phase.READY)

    @property
    def lost(self) -> bool:
        """Whether it has no place in the group any more."""
        return self.phase in (Phase.ENDED, Phase.DELETED)


class Plan(NamedTuple):
    """The ranks to create, the names to delete with the reason, the lost workers, and the state of the group."""

    create: Sequence[int] = ()
    delete: Sequence[tuple[str, str]] = ()
    lost: Sequence[Worker] = ()
    state: State = GOOD


def make_plan(
    spec: Workers, leader: Leader, workers: Sequence[Worker], *, waits: bool = False, refusal: str = ""
) -> Plan:
    """Return the plan for the workers that exist.

    `waits` is whether a back-off is not over yet, so that no worker is created. `refusal` is why the cluster refused
    the last creation.
    """
    if leader.ended and not leader.ending:
        delete = [(one.name, "its leader has ended") for one in workers if one.phase is not Phase.DELETED]
        return Plan(delete=delete, state=_state(spec, workers, refusal))
    if leader.ending or not leader.address:
        return Plan(state=_state(spec, workers, refusal))
    outdated = [one for one in workers if one.start != leader.start]
    if outdated:
        delete = [(one.name, "its leader has started anew") for one in outdated if one.phase is not Phase.DELETED]
        return Plan(delete=delete, state=_state(spec, workers, refusal))
    if leader.crashed:
        delete = [(one.name, "its leader's server has ended") for one in workers if one.phase is Phase.ENDED]
        return Plan(delete=delete, state=_state(spec, workers, refusal))
    lost = [one for one in workers if one.lost]
    missing = sorted(set(range(1, spec.count + 1)) - {one.rank for one in workers})
    gone = bool(missing) and any(one.works for one in workers)
    delete = [(one.name, "it has ended") for one in lost if one.phase is Phase.ENDED]
    if spec.on_loss == "restart" and (lost or gone):
        delete += [(one.name, "another worker of its group is lost") for one in workers if not one.lost]
        missing = []
    create = [] if waits else missing
    return Plan(create, delete, [one for one in lost if one.phase is Phase.ENDED], _state(spec, workers, refusal))


def _state(spec: Workers, workers: Sequence[Worker], refusal: str) -> State:
    """Return the state of a group with these workers: the most severe cause for which it is not complete."""
    ready = sum(one.phase is Phase.READY for one in workers)
    message = f"{ready} of {spec.count} workers are ready"
    if ready == spec.count:
        return State("True", "", message)
    for one in sorted(workers, key=lambda one: (not one.lost, one.rank)):
        if one.phase is Phase.ENDED:
            return State("False", LOST, f"{message}: {one.name} ended{_because(one)}")
        if one.phase is Phase.DELETED:
            return State("False", LOST, f"{message}: {one.name} is being deleted")
        if one.phase is Phase.WAITING and one.reason:
            return State("False", one.reason, f"{message}: {one.name} is waiting{_because(one)}")
    if refusal:
        return State("False", "WorkerRefused", f"{message}: the cluster refuses a worker: {refusal}")
    return State("Unknown", STARTING, message)


def _because(worker: Worker) -> str:
    words = ": ".join(filter(None, (worker.reason, worker.message)))
    return f": {words}" if words else ""
