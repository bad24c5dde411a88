"""The state of a leader's workers, as an annotation of its Pod, and from there as a condition of the Model.

The controller of groups writes the annotation, and the reconciler of Models reads it. Both run in one process, but a
restarted process must find the states on the Pods.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Protocol, get_args

from clusters.base.objects import (
    POD,
    Key,
    Object,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
)
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers
from serving.groups.pods import has_ended, workers_of
from serving.types.annotations import ANNOTATION_WORKERS_STATE, LABEL_MODEL
from serving.types.lifecycle import State, Status
from serving.types.model import Model

BY_MODEL = "knodel.leaders"
"""Index of leaders' Pods by `namespace/name` of their Model."""
_SEVERITY: tuple[Status, ...] = ("False", "Unknown", "True")


class GroupStates(Protocol):
    """The states of a Model's groups."""

    def state(self, model: Model) -> State | None:
        """Return the worst state of the Model's groups; None without any."""
        ...

    def watch(self, controller: Controller) -> None:
        """Enqueue a Model when a state of its groups changes."""
        ...


class PodGroupStates:
    """The states in the annotations of leaders' Pods. Create it before the informers run."""

    def __init__(self, informers: Informers) -> None:
        self._pods = informers[POD]
        self._pods.add_index(BY_MODEL, lambda pod: map(str, _model_of_leader(pod)))

    def state(self, model: Model) -> State | None:
        """Return the worst state; of equally bad ones that of the first leader by name."""
        pods = self._pods.indexed(BY_MODEL, str(Key(model.namespace, model.name)))
        return worst_state(pod for pod in pods if not is_deleting(pod) and not has_ended(pod))

    def watch(self, controller: Controller) -> None:
        """Enqueue the Models of changed leaders."""
        controller.watches_mapped(self._pods, _model_of_leader)


class OneMachine:
    """The workers on the embedded cluster, which are no Pods: the leader has their CPUs, and all GPUs are its own."""

    def state(self, model: Model) -> State | None:
        """Return a state whose message has the place of the workers."""
        workers = model.spec.workers
        if workers is None:
            return None
        if model.spec.model_format == "ray":
            number = f"{workers.count} {'worker' if workers.count == 1 else 'workers'}"
            return State("True", "OneMachine", f"one machine: the leader's Ray has the CPUs of {number}")
        return State("True", "OneMachine", "one machine: the leader's process uses the GPUs of this machine")

    def watch(self, controller: Controller) -> None:
        """Do nothing: the state changes with the Model only."""


def worst_state(leaders: Iterable[Object]) -> State | None:
    """Return the worst state of these Pods, with the name of its leader; None without a state."""
    found = [(name_of(pod), state) for pod in leaders if (state := read_state(pod)) is not None]
    if not found:
        return None
    name, state = min(found, key=lambda one: (_SEVERITY.index(one[1].status), one[0]))
    return state._replace(message=f"{name}: {state.message}")


def read_state(leader: Object) -> State | None:
    """Return the state in the annotation of a leader's Pod; None without one, or if it is not readable."""
    try:
        found = json.loads(annotations_of(leader).get(ANNOTATION_WORKERS_STATE, ""))
        status, reason, message = found["status"], str(found["reason"]), str(found["message"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return State(status, reason, message) if status in get_args(Status) else None


def state_patch(state: State) -> Object:
    """Return the merge patch that writes the state on a leader's Pod."""
    text = json.dumps(state._asdict(), separators=(",", ":"))
    return {"metadata": {"annotations": {ANNOTATION_WORKERS_STATE: text}}}


def _model_of_leader(pod: Object) -> list[Key]:
    name = labels_of(pod).get(LABEL_MODEL)
    return [Key(namespace_of(pod), name)] if name and workers_of(pod) is not None else []
