"""Reasons for a number of replicas. Each stage that changes the number adds a `Reason`, which is rendered here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Rule(StrEnum):
    """The stages, as named in recorded decisions."""

    STABLE = "Stable"
    WAITING = "Waiting"
    CROWDED = "Crowded"
    PANIC = "Panic"
    SLOW = "SlowAnswers"
    HOLD = "PeakHold"
    STARTING = "Starting"
    NO_DATA = "NotEnoughData"
    RATE = "RateLimit"
    ACTIVATION = "ActivationScale"
    DELAY = "ScaleDownDelay"
    IN_USE = "InUse"
    IDLE = "Idle"
    BOUNDS = "Bounds"
    GPU = "GPU"
    EXPIRED = "ProgressDeadlineExceeded"


_TEXTS = {
    Rule.STABLE: "{work:.2f} slots in use over {window:g} s, {per_replica:g} per replica: {after}",
    Rule.WAITING: "{queued:g} {requests} ({backlog:.1f} slots beyond what starting replicas drain) and {work:.2f} "
    "slots are in use, {per_replica:g} per replica: {after}",
    Rule.CROWDED: "requests are queued inside replicas, {crowd:g} slots are used or waited for, {per_replica:g} per "
    "replica: {after}",
    Rule.PANIC: "demand exceeds {threshold:g} times the {ready:g} ready replicas: {after} for {remaining:.0f} s",
    Rule.SLOW: "responses take {latency:.3g} s, the objective is {objective:g} s, and the {ready:g} ready replicas are "
    "busy: {after}",
    Rule.HOLD: "peak demand of the last {hold:.0f} s was {peak:g} replicas, and a start takes {start_time:.1f} s: "
    "{after}",
    Rule.STARTING: "requests wait, so none of the {current:g} replicas is removed: {after}",
    Rule.NO_DATA: "readings cover {covered:.0f} s of {window:g} s, so there is no scale-down: {after}",
    Rule.RATE: "one step from {current:g} replicas may reach {least:g} to {most:g}: {after}",
    Rule.ACTIVATION: "scaling from zero starts at least {activation:g} replicas: {after}",
    Rule.DELAY: "replicas are removed after {delay:g} s of lower demand: {after}",
    Rule.IN_USE: "idle for {idle:.0f} s of {limit:g} s, so one replica remains: {after}",
    Rule.IDLE: "idle for {idle:.0f} s, limit {limit:g} s: {after}",
    Rule.BOUNDS: "the policy allows {least:g} to {most:g} replicas: {after}",
    Rule.GPU: "{note}: {after}",
    Rule.EXPIRED: "not ready within the progress deadline: {after}",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A stage that changed the number of replicas from `before` to `after`, with the values that it used.

    `note` is a text among them: who holds the GPUs.
    """

    rule: Rule
    before: int
    after: int
    values: Mapping[str, float]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the decisions annotation, without NaN and infinities, which JSON does not have."""
        finite = {name: round(value, 3) for name, value in self.values.items() if abs(value) < float("inf")}
        return {"rule": self.rule.value, "message": render(self), "values": finite}


def render(reason: Reason) -> str:
    """Return the reason as one line of text."""
    requests = "request waits" if reason.values.get("queued") == 1 else "requests wait"
    numbers = {"before": reason.before, "after": reason.after}
    return _TEXTS[reason.rule].format(**reason.values, **numbers, requests=requests, note=reason.note)
