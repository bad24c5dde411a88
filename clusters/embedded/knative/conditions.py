"""Conditions as Knative keeps them: dependents, and one happy condition that follows them.

The rules are those of knative/pkg `apis/condition_set.go` (a living condition set): False trumps Unknown, the happy
condition carries reason and message of the unhappy dependent that changed last, conditions are sorted by type, and
`lastTransitionTime` moves whenever anything else of the condition does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from clusters.base.objects import Object, generation_of, timestamp

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
TIME = "lastTransitionTime"
REASON_NEW_GENERATION = "NewObservedGenFailure"
MESSAGE_NEW_GENERATION = "unsuccessfully observed a new generation"


@dataclass(frozen=True, slots=True)
class ConditionSet:
    """Which conditions must be True for the happy one; all others only inform (`severity: Info`)."""

    dependents: tuple[str, ...] = ()
    happy: str = "Ready"


class Conditions:
    """The conditions of one status, while a pass changes them."""

    def __init__(self, kinds: ConditionSet, former: Sequence[Object]) -> None:
        self._kinds = kinds
        self._former = {str(condition["type"]): condition for condition in former}
        self._present = {kind: _without_time(condition) for kind, condition in self._former.items()}
        by_time = sorted(former, key=lambda condition: str(condition.get(TIME, "")))
        self._age = {str(condition["type"]): age for age, condition in enumerate(by_time)}
        self._changes = len(by_time)
        self._initialize()

    def get(self, kind: str) -> Object | None:
        """The condition as it stands now, without its time."""
        return self._present.get(kind)

    def status(self, kind: str) -> str:
        """True, False or Unknown as text; empty for a condition that was never set."""
        return str(self._present.get(kind, {}).get("status", ""))

    def mark_true(self, kind: str, reason: str = "", message: str = "") -> None:
        """The condition holds; so does the happy one if nothing else stands against it."""
        self._set(kind, TRUE, reason, message)
        unhappy = self._unhappy()
        if unhappy is not None:
            self._set(self._kinds.happy, unhappy["status"], unhappy.get("reason", ""), unhappy.get("message", ""))
        elif kind != self._kinds.happy:
            self._set(self._kinds.happy, TRUE)

    def mark_unknown(self, kind: str, reason: str = "", message: str = "") -> None:
        """It cannot be said yet; the happy condition follows unless a dependent is False."""
        self._set(kind, UNKNOWN, reason, message)
        if any(self.status(dependent) == FALSE for dependent in self._kinds.dependents):
            if self.status(self._kinds.happy) != FALSE:
                self._set(self._kinds.happy, FALSE, reason, message)
        elif kind in self._kinds.dependents:
            self._set(self._kinds.happy, UNKNOWN, reason, message)

    def mark_false(self, kind: str, reason: str, message: str = "") -> None:
        """The condition failed, and the happy one with it when it depends on it."""
        self._set(kind, FALSE, reason, message)
        if kind in self._kinds.dependents:
            self._set(self._kinds.happy, FALSE, reason, message)

    def propagate(self, kind: str, condition: Object | None) -> None:
        """Take over status, reason and message of another object's condition; None changes nothing."""
        if condition is None:
            return
        reason, message = str(condition.get("reason", "")), str(condition.get("message", ""))
        if condition["status"] == TRUE:
            self.mark_true(kind)
        elif condition["status"] == FALSE:
            self.mark_false(kind, reason, message)
        else:
            self.mark_unknown(kind, reason, message)

    def result(self, now: datetime) -> list[Object]:
        """The conditions to store, sorted by type; what is as it was keeps its time."""
        return [self._stamped(self._present[kind], now) for kind in sorted(self._present)]

    def _stamped(self, condition: Object, now: datetime) -> Object:
        former = self._former.get(condition["type"])
        if former is not None and _without_time(former) == condition:
            return former
        return {**condition, TIME: timestamp(now)}

    def _initialize(self) -> None:
        happy = self._kinds.happy
        if happy not in self._present:
            self._set(happy, UNKNOWN)
        initial = TRUE if self.status(happy) == TRUE else UNKNOWN
        for kind in self._kinds.dependents:
            if kind not in self._present:
                self._set(kind, initial)

    def _set(self, kind: str, status: str, reason: str = "", message: str = "") -> None:
        fresh: Object = {"type": kind, "status": status}
        if kind != self._kinds.happy and kind not in self._kinds.dependents:
            fresh["severity"] = "Info"
        if reason:
            fresh["reason"] = reason
        if message:
            fresh["message"] = message
        if self._present.get(kind) == fresh:
            return
        self._present[kind] = fresh
        self._age[kind] = self._changes
        self._changes += 1

    def _unhappy(self) -> Object | None:
        dependents = [self._present[kind] for kind in self._kinds.dependents]
        dependents.sort(key=lambda condition: -self._age[condition["type"]])
        for status in (FALSE, UNKNOWN):
            for condition in dependents:
                if condition["status"] == status:
                    return condition
        return None


class Status:
    """A status while a pass changes it: its fields, and its conditions by the rules of the kind.

    As in Knative's generated reconcilers the happy condition turns Unknown when the generation is a new one, and
    `observedGeneration` follows whatever the pass finds.
    """

    kinds = ConditionSet()

    def __init__(self, obj: Object) -> None:
        self.fields: Object = dict(obj.get("status") or {})
        self.conditions = Conditions(self.kinds, self.fields.get("conditions") or ())
        self._generation = generation_of(obj)
        if self.fields.get("observedGeneration") != self._generation:
            self.conditions.mark_unknown(self.kinds.happy, REASON_NEW_GENERATION, MESSAGE_NEW_GENERATION)

    def result(self, now: datetime) -> Object:
        """The status to store; fields that are None are left out."""
        fields = {key: value for key, value in self.fields.items() if value is not None}
        return {**fields, "conditions": self.conditions.result(now), "observedGeneration": self._generation}


def _without_time(condition: Object) -> Object:
    return {key: value for key, value in condition.items() if key != TIME}
