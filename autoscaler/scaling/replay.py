"""Replay of decisions: the inputs of a decision, stored as JSON, and a new decision from them, optionally by another
policy.

An entry contains the row of each table where it differs from the column's default, and the settings that differ from
theirs:

    {"now": 812.5, "specs": {"max": 4, "target": 4.0}, "seen": {"current": 1, "queued": 12.0, "idle": "nan"},
     "state": {"panic_until": "-inf"}, "settings": {"tolerance": 0.1}, "notes": {"GPU": "8 of 8 are held"}}

Numbers are exact (NaN and the infinities as text), so the same rules give the same decision. After an upgrade, other
rules may give another decision, which the replay then shows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final, TypeVar

import numpy as np

from autoscaler.config import DecisionSettings
from autoscaler.scaling.decider import STAGES, decide
from autoscaler.scaling.reasons import render
from autoscaler.scaling.table import Columns, DeciderState, Observations, Specs
from clusters.base.errors import KnodelError

INPUTS_ANNOTATION: Final = "autoscaling.knodel.dev/inputs"
"""On PodAutoscalers: the inputs of the last decisions, oldest first, each with `at`, `from` and `to`."""

COLUMNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "minReplicas": "min",
        "maxReplicas": "max",
        "scaleTarget": "target",
        "targetUtilization": "utilization",
        "scaleToZeroAfter": "scale_to_zero_after",
        "latencyObjective": "latency_objective",
        "initialScale": "initial",
        "activationScale": "activation",
        "scaleDownDelay": "scale_down_delay",
    }
)
"""Policy fields that a replay may change, with their columns. Excluded are fields that affect the measurements, such as
`stableWindow`, because the measurements cannot be repeated.
"""

T = TypeVar("T", bound=Columns)


class NoReplay(KnodelError):
    """Raised when the stored inputs of a decision cannot be replayed."""


@dataclass(frozen=True, slots=True)
class Step:
    """One stage: the number before and after it, and the reason; `message` is empty if the number did not change."""

    rule: str
    before: int
    after: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay."""

    desired: int
    steps: tuple[Step, ...]


def inputs_of(
    specs: Specs,
    seen: Observations,
    state: DeciderState,
    row: int,
    now: float,
    settings: DecisionSettings,
    notes: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the inputs of the decision about a row. Must be called before the state is overwritten.

    `notes` are the texts of reasons by rule.
    """
    usual = DecisionSettings()
    given = {one.name: getattr(settings, one.name) for one in fields(DecisionSettings)}
    found = {
        "now": now,
        "specs": dict(_row(specs, row)),
        "seen": dict(_row(seen, row)),
        "state": dict(_row(state, row)),
        "settings": {name: value for name, value in given.items() if value != getattr(usual, name)},
    }
    return {**found, "notes": dict(notes)} if notes else found


def replay(inputs: Mapping[str, Any], changes: Mapping[str, float] = MappingProxyType({})) -> Replayed:
    """Decide again; `changes` are columns of `Specs` with other values. Raises NoReplay."""
    try:
        specs = _table(Specs, {**inputs["specs"], **changes})
        seen, state = _table(Observations, inputs["seen"]), _table(DeciderState, inputs["state"])
        known = {one.name for one in fields(DecisionSettings)}
        given = {name: value for name, value in inputs["settings"].items() if name in known}
        settings = dataclasses.replace(DecisionSettings(), **given)
        decisions, _ = decide(specs, seen, state, float(inputs["now"]), settings)
        notes = {str(rule): str(note) for rule, note in inputs.get("notes", {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NoReplay(f"the inputs of this decision are unreadable ({error}): another version wrote them") from error
    reasons = {reason.rule: reason for reason in decisions.reasons(0, notes)}
    steps, number = [], int(seen.current[0])
    for rule, _ in STAGES:
        reason = reasons.get(rule)
        after = reason.after if reason is not None else number
        steps.append(Step(rule.value, number, after, render(reason) if reason is not None else ""))
        number = after
    return Replayed(int(decisions.desired[0]), tuple(steps))


def _row(table: Columns, row: int) -> Iterator[tuple[str, Any]]:
    for one in fields(table):
        value, usual = getattr(table, one.name)[..., row].tolist(), one.metadata["default"]
        values = value if isinstance(value, list) else [value]
        if not all(each == usual or (math.isnan(each) and math.isnan(usual)) for each in values):
            yield one.name, _told(value)


def _table(kind: type[T], row: Mapping[str, Any]) -> T:
    """Return a table of one row. Columns that this version does not know are dropped."""
    names = {one.name for one in fields(kind)}
    columns = {name: np.atleast_1d(_heard(value)) for name, value in row.items() if name in names}
    return kind.of(**{name: value[:, None] if value.size > 1 else value for name, value in columns.items()})


def _told(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, list):
        return [_told(one) for one in value]
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _heard(value: Any) -> Any:
    if isinstance(value, list):
        return [_heard(one) for one in value]
    return float(value) if isinstance(value, str) else value
