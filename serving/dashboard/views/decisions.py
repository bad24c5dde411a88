"""Scaling decisions with the signals that they were made from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.scaling.replay import INPUTS_ANNOTATION
from autoscaler.types import read_entries
from clusters.base.objects import Object, name_of

NAMES: Final[Mapping[str, str]] = {
    "current": "replicas",
    "ready": "ready replicas",
    "queued": "queued requests",
    "stable": "load, stable window",
    "panic": "load, panic window",
    "latency": "response time (s)",
    "idle": "idle for (s)",
    "active": "forwarded requests",
    "crowd": "requests in busy replicas",
    "unknown": "load of silent replicas",
    "starting_seconds": "age of starting replicas (s)",
    "service_time": "time of a request (s)",
    "start_time": "time of a start (s)",
    "age": "measured for (s)",
    "covered": "window covered (s)",
    "answers": "responses measured",
    "granted": "replicas with GPUs",
}
"""Signals by their column, with a name for people; others are shown by their column."""


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """A decision: the number of replicas before and after it, its reasons, and the recorded signals."""

    at: str
    revision: str
    before: str
    after: str
    reasons: tuple[str, ...]
    signals: tuple[tuple[str, str], ...]


def decision_lines(decisions: Sequence[Mapping[str, Any]], autoscalers: Iterable[Object]) -> list[DecisionLine]:
    """Return the decisions of a Model's status, newest first, with the inputs that its PodAutoscalers recorded."""
    inputs = {
        (name_of(one), str(entry.get("at"))): entry
        for one in autoscalers
        for entry in read_entries(one, INPUTS_ANNOTATION)
    }
    lines = []
    for decision in decisions:
        at, revision = str(decision.get("at") or ""), str(decision.get("revision") or "")
        seen = (inputs.get((revision, at)) or {}).get("seen") or {}
        lines.append(
            DecisionLine(
                at=at,
                revision=revision,
                before=str(decision.get("from", "")),
                after=str(decision.get("to", "")),
                reasons=tuple(str(one.get("message") or "") for one in decision.get("reasons") or ()),
                signals=tuple((NAMES.get(str(name), str(name)), _shown(value)) for name, value in seen.items()),
            )
        )
    lines.sort(key=lambda line: line.at, reverse=True)
    return lines


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
