"""Traces: which conditions of which objects took which values, in one order over all objects. Pure.

A value is a condition's status, with its reason when there is one (`Unknown RevisionMissing`). The object itself is
traced as the condition `(object)`, whose values are `made` and `gone`. Changes are ordered by `resourceVersion`, which
both clusters count for all their objects together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clusters.base.api import WatchEvent
from clusters.base.objects import (
    CONFIGURATION,
    POD_AUTOSCALER,
    REVISION,
    ROUTE,
    SERVERLESS_SERVICE,
    SERVICE,
    Kind,
    Object,
    name_of,
    version_of,
)

TRACED = (SERVICE, CONFIGURATION, REVISION, ROUTE, POD_AUTOSCALER, SERVERLESS_SERVICE)
"""The kinds whose conditions are traced."""

OBJECT = "(object)"
MADE, GONE = "made", "gone"

State = dict[str, dict[str, str]]
"""Object (`Kind/name`) → condition → value."""


@dataclass(frozen=True, slots=True)
class Change:
    """One condition of one object took a value; changes of one write have one version."""

    version: int
    object: str
    condition: str
    value: str


@dataclass(frozen=True, slots=True)
class Trace:
    """The changes of a case, and how things stood after the last of them."""

    changes: tuple[Change, ...]
    final: Mapping[str, Mapping[str, str]]

    def values(self, obj: str, condition: str) -> list[str]:
        """The values that this condition took, in order."""
        return [one.value for one in self.changes if (one.object, one.condition) == (obj, condition)]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        changes = [[one.version, one.object, one.condition, one.value] for one in self.changes]
        return {"changes": changes, "final": {obj: dict(conditions) for obj, conditions in self.final.items()}}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Trace:
        """The inverse of `to_dict`."""
        return cls(tuple(Change(*change) for change in value["changes"]), value["final"])


def trace_of(events: Iterable[tuple[Kind, WatchEvent]], after: int = 0) -> Trace:
    """The trace of watch events of several kinds; those up to version `after` only say how things stood before."""
    state: State = {}
    changes: list[Change] = []
    for kind, event in sorted(events, key=lambda one: _version(one[1])):
        obj, version = f"{kind.kind}/{name_of(event.object)}", _version(event)
        wanted = {} if event.type == "DELETED" else {OBJECT: MADE} | conditions_of(event.object)
        former = state.pop(obj, {})
        if wanted:
            state[obj] = wanted
        elif former:
            wanted = {OBJECT: GONE}
        if version > after:
            news = sorted(wanted.items() - former.items())
            changes += [Change(version, obj, condition, value) for condition, value in news]
    return Trace(tuple(changes), state)


def conditions_of(obj: Object) -> dict[str, str]:
    """Condition → value of an object."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return {one["type"]: " ".join(filter(None, (one["status"], one.get("reason")))) for one in conditions}


def _version(event: WatchEvent) -> int:
    return int(version_of(event.object))
