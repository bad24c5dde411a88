"""Conditions as in Knative: dependent conditions, and one happy condition that is derived from them.

The rules are those of knative/pkg `apis/condition_set.go` (a living condition set). False takes precedence over
Unknown. The happy condition has the reason and message of the unhappy dependent that changed last. Conditions are
sorted by type, and `lastTransitionTime` changes with any other field of the condition.
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
    """The conditions that must be True for the happy one. All others are informational (`severity: Info`)."""

    dependents: tuple[str, ...] = ()
    happy: str = "Ready"


class Conditions:
    """The conditions of one status while it is being reconciled. `previous` are the stored ones."""

    def __init__(self, condition_set: ConditionSet, previous: Sequence[Object]) -> None:
        self._condition_set = condition_set
        self._previous = {str(condition["type"]): condition for condition in previous}
        self._present = {kind: _without_time(condition) for kind, condition in self._previous.items()}
        by_time = sorted(previous, key=lambda condition: str(condition.get(TIME, "")))
        self._age = {str(condition["type"]): age for age, condition in enumerate(by_time)}
        self._changes = len(by_time)
        happy = condition_set.happy
        if happy not in self._present:
            self._set(happy, UNKNOWN)
        initial = TRUE if self.status(happy) == TRUE else UNKNOWN
        for kind in condition_set.dependents:
            if kind not in self._present:
                self._set(kind, initial)

    def get(self, kind: str) -> Object | None:
        """Return the present condition without its time, or None."""
        return self._present.get(kind)

    def status(self, kind: str) -> str:
        """Return True, False or Unknown as a string; empty for a condition that was never set."""
        return str(self._present.get(kind, {}).get("status", ""))

    def mark_true(self, kind: str, reason: str = "", message: str = "") -> None:
        """Set the condition to True, and also the happy one unless a dependent is not True."""
        self._set(kind, TRUE, reason, message)
        unhappy = self._unhappy()
        if unhappy is not None:
            self._set(
                self._condition_set.happy, unhappy["status"], unhappy.get("reason", ""), unhappy.get("message", "")
            )
        elif kind != self._condition_set.happy:
            self._set(self._condition_set.happy, TRUE)

    def mark_unknown(self, kind: str, reason: str = "", message: str = "") -> None:
        """Set the condition to Unknown, and also the happy one unless a dependent is False."""
        self._set(kind, UNKNOWN, reason, message)
        if any(self.status(dependent) == FALSE for dependent in self._condition_set.dependents):
            if self.status(self._condition_set.happy) != FALSE:
                self._set(self._condition_set.happy, FALSE, reason, message)
        elif kind in self._condition_set.dependents:
            self._set(self._condition_set.happy, UNKNOWN, reason, message)

    def mark_false(self, kind: str, reason: str, message: str = "") -> None:
        """Set the condition to False, and also the happy one if it depends on it."""
        self._set(kind, FALSE, reason, message)
        if kind in self._condition_set.dependents:
            self._set(self._condition_set.happy, FALSE, reason, message)

    def propagate(self, kind: str, condition: Object | None) -> None:
        """Copy status, reason and message of another object's condition. None has no effect."""
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
        """Return the conditions to store, sorted by type. Unchanged ones keep their time."""
        conditions: list[Object] = []
        for kind in sorted(self._present):
            condition, previous = self._present[kind], self._previous.get(kind)
            unchanged = previous is not None and _without_time(previous) == condition
            conditions.append(previous if unchanged and previous else {**condition, TIME: timestamp(now)})
        return conditions

    def _set(self, kind: str, status: str, reason: str = "", message: str = "") -> None:
        fresh: Object = {"type": kind, "status": status}
        if kind != self._condition_set.happy and kind not in self._condition_set.dependents:
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
        dependents = [self._present[kind] for kind in self._condition_set.dependents]
        dependents.sort(key=lambda condition: -self._age[condition["type"]])
        for status in (FALSE, UNKNOWN):
            for condition in dependents:
                if condition["status"] == status:
                    return condition
        return None


class Status:
    """A status while it is being reconciled: its fields, and its conditions by the rules of `condition_set`.

    As in Knative's generated reconcilers, the happy condition becomes Unknown for a new generation, and
    `observedGeneration` is updated even if the reconciler fails.
    """

    condition_set = ConditionSet()

    def __init__(self, obj: Object) -> None:
        self.fields: Object = dict(obj.get("status") or {})
        self.conditions = Conditions(self.condition_set, self.fields.get("conditions") or ())
        self._generation = generation_of(obj)
        if self.fields.get("observedGeneration") != self._generation:
            self.conditions.mark_unknown(self.condition_set.happy, REASON_NEW_GENERATION, MESSAGE_NEW_GENERATION)

    def result(self, now: datetime) -> Object:
        """Return the status to store, without fields that are None."""
        fields = {key: value for key, value in self.fields.items() if value is not None}
        return {**fields, "conditions": self.conditions.result(now), "observedGeneration": self._generation}


def _without_time(condition: Object) -> Object:
    return {key: value for key, value in condition.items() if key != TIME}
