"""One line about each model: state, versions with their shares, replicas, traffic, cost. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, Literal

from clusters.base.objects import Object, condition_of, is_deleting, name_of, namespace_of
from serving.client.models.rollout_view import RolloutView
from serving.dashboard.history import Reading
from serving.types.lifecycle import READY

State = Literal["ready", "idle", "starting", "failed", "deleting"]
WORDS: Final[dict[State, str]] = {
    "ready": "Ready",
    "idle": "Idle",
    "starting": "Starting",
    "failed": "Failed",
    "deleting": "Deleting",
}
COLOURS: Final = 6
"""Colours of versions in the style sheet."""


@dataclass(frozen=True, slots=True)
class Share:
    """A version with traffic: `colour` is its number in the style sheet, `left` the sum of the shares before it."""

    revision: str
    version: str
    percent: int
    left: int
    colour: int
    tag: str = ""

    @property
    def name(self) -> str:
        """The name to display: the version label, else the revision."""
        return self.version or self.revision


@dataclass(frozen=True, slots=True)
class ModelLine:
    """What the list of models shows of one."""

    namespace: str
    name: str
    format: str
    state: State
    reason: str
    message: str
    shares: tuple[Share, ...]
    ready: int
    desired: int
    rollout: str
    reading: Reading | None
    cost: float | None

    @property
    def word(self) -> str:
        """The state in a word."""
        return WORDS[self.state]


def state_of(model: Object) -> tuple[State, str, str]:
    """Return the state of a Model with the reason and message of its condition Ready."""
    ready = condition_of(model, READY) or {}
    reason, message = str(ready.get("reason") or ""), str(ready.get("message") or "")
    if is_deleting(model):
        return "deleting", reason, message
    if ready.get("status") == "True":
        return ("ready" if replicas_of(model)[0] else "idle"), "", ""
    return ("failed" if ready.get("status") == "False" else "starting"), reason, message


def replicas_of(model: Object) -> tuple[int, int]:
    """Return the ready and the desired replicas of all versions."""
    counts = status_of(model).get("replicas") or {}
    return int(counts.get("ready") or 0), int(counts.get("desired") or 0)


def shares_of(model: Object) -> tuple[Share, ...]:
    """Return the versions with traffic, or with a tag, in the order of the gateway.

    A label that two revisions have is left out, so that they are told apart by their names.
    """
    found, left = [], 0
    entries = status_of(model).get("traffic") or ()
    names = Counter(label for label, _ in {(one.get("version"), one.get("revision")) for one in entries})
    for entry in entries:
        revision, percent = str(entry.get("revision") or ""), int(entry.get("percent") or 0)
        tag, version = str(entry.get("tag") or ""), str(entry.get("version") or "")
        version = version if names[entry.get("version")] == 1 else ""
        found.append(Share(revision, version, percent, left, colour_of(revision), tag))
        left += percent
    return tuple(found)


def colour_of(revision: str) -> int:
    """Return the colour of a version: neighbours have different ones, and a version keeps its own."""
    number = revision.rpartition("-")[2]
    return (int(number) - 1) % COLOURS if number.isascii() and number.isdigit() and len(number) < 10 else 0


def line_of(model: Object, reading: Reading | None, cost: float | None, rollout: RolloutView | None) -> ModelLine:
    """Return the line of a Model."""
    state, reason, message = state_of(model)
    ready, desired = replicas_of(model)
    running = rollout is not None and rollout.state.runs
    return ModelLine(
        namespace=namespace_of(model),
        name=name_of(model),
        format=str((model.get("spec") or {}).get("modelFormat") or status_of(model).get("modelFormat") or ""),
        state=state,
        reason=reason,
        message=message,
        shares=shares_of(model),
        ready=ready,
        desired=desired,
        rollout=f"{rollout.state.phase}, step {rollout.step} of {len(rollout.rule.steps)}"
        if running and rollout is not None
        else "",
        reading=reading,
        cost=cost,
    )


def status_of(obj: Object) -> dict[str, Any]:
    """Return the status of an object; empty without one."""
    found: dict[str, Any] = obj.get("status") or {}
    return found
