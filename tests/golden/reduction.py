"""From recordings of one case to its golden trace: what all of them share. Pure.

1. Per condition of an object: the longest sequence of values that every recording showed in this order (a longest
   common subsequence, taken pairwise from the first recording on).
2. The final values that are the same in all.
3. Orders across objects, only where one follows from the other: the last change of `Ready`, or the birth or the end, of
   one object came before that of another in every recording.
4. All values that any recording showed: what a cluster shows beyond them is not Knative's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce as fold
from typing import Any

from tests.golden.trace import OBJECT, Change, Trace

READY = "Ready"

CAUSES = {
    READY: (
        ("ServerlessService", "PodAutoscaler"),
        ("PodAutoscaler", "Revision"),
        ("Revision", "Configuration"),
        ("Configuration", "Route"),
        ("Configuration", "Service"),
        ("Route", "Service"),
    ),
    OBJECT: (
        ("Service", "Configuration"),
        ("Service", "Route"),
        ("Configuration", "Revision"),
        ("Revision", "PodAutoscaler"),
        ("PodAutoscaler", "ServerlessService"),
    ),
}
"""Condition → kinds of which the first one's is a cause of the second one's."""


@dataclass(frozen=True, slots=True)
class Golden:
    """What real Knative always shows in a case (required, final, orders), and all that it ever shows (seen)."""

    case: str
    knative: str
    recordings: int
    required: Mapping[str, Mapping[str, Sequence[str]]]  # object → condition → values in order
    final: Mapping[str, Mapping[str, str]]  # object → condition → value
    orders: Sequence[tuple[str, str, str]]  # condition, object, object: the former's last change came first
    seen: Mapping[str, Mapping[str, Sequence[str]]]  # kind → condition → values

    def to_dict(self) -> dict[str, Any]:
        """As YAML."""
        return {
            "case": self.case,
            "knative": self.knative,
            "recordings": self.recordings,
            "required": {
                obj: {one: list(values) for one, values in found.items()} for obj, found in self.required.items()
            },
            "final": {obj: dict(found) for obj, found in self.final.items()},
            "orders": [f"{condition}: {first} before {then}" for condition, first, then in self.orders],
            "seen": {kind: {one: list(values) for one, values in found.items()} for kind, found in self.seen.items()},
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Golden:
        """The inverse of `to_dict`."""
        orders = []
        for text in value["orders"]:
            condition, _, rest = text.partition(": ")
            first, _, then = rest.partition(" before ")
            orders.append((condition, first, then))
        return cls(**{**value, "orders": orders})


def reduce(case: str, knative: str, traces: Sequence[Trace]) -> Golden:
    """The golden trace of a case. Raises ValueError without recordings."""
    if not traces:
        raise ValueError(f"case {case}: no recordings to reduce")
    return Golden(case, knative, len(traces), _required(traces), _final(traces), _orders(traces), _seen(traces))


def common(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """A longest common subsequence; of several equally long ones that which the first sequence has earliest."""
    lengths = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i in reversed(range(len(first))):
        for j in reversed(range(len(second))):
            longest = max(lengths[i + 1][j], lengths[i][j + 1])
            lengths[i][j] = lengths[i + 1][j + 1] + 1 if first[i] == second[j] else longest
    found: list[str] = []
    i = j = 0
    while i < len(first) and j < len(second):
        if first[i] == second[j]:
            found.append(first[i])
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return found


def last_changes(trace: Trace, condition: str) -> dict[str, Change]:
    """Object → the last change of this condition."""
    return {change.object: change for change in trace.changes if change.condition == condition}


def precedes(trace: Trace, condition: str, first: str, then: str) -> bool:
    """Whether both changed in this condition, and the last change of `first` was written before that of `then`."""
    last = last_changes(trace, condition)
    return first in last and then in last and last[first].version < last[then].version


def _required(traces: Sequence[Trace]) -> dict[str, dict[str, list[str]]]:
    required: dict[str, dict[str, list[str]]] = {}
    for obj, condition in sorted({(one.object, one.condition) for one in traces[0].changes}):
        values = fold(common, (trace.values(obj, condition) for trace in traces))
        if values:
            required.setdefault(obj, {})[condition] = list(values)
    return required


def _final(traces: Sequence[Trace]) -> dict[str, dict[str, str]]:
    final: dict[str, dict[str, str]] = {}
    for obj, conditions in sorted(traces[0].final.items()):
        for condition, value in sorted(conditions.items()):
            if all(trace.final.get(obj, {}).get(condition) == value for trace in traces):
                final.setdefault(obj, {})[condition] = value
    return final


def _orders(traces: Sequence[Trace]) -> list[tuple[str, str, str]]:
    return [
        (condition, first, then)
        for condition, pairs in CAUSES.items()
        for first, then in _candidates(last_changes(traces[0], condition), pairs)
        if all(precedes(trace, condition, first, then) for trace in traces)
    ]


def _candidates(objects: Iterable[str], pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs of objects of these kinds; what belongs to a Revision bears its name, and only then it is a cause."""
    named = sorted(obj.split("/", 1) for obj in objects)
    return [
        (f"{first}/{one}", f"{then}/{other}")
        for first, then in pairs
        for kind, one in named
        for another, other in named
        if (kind, another) == (first, then) and (one == other or "Configuration" in (first, then))
    ]


def _seen(traces: Sequence[Trace]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, set[str]]] = {}
    for trace in traces:
        before = [(obj, one, value) for obj, values in trace.final.items() for one, value in values.items()]
        for obj, condition, value in (*((one.object, one.condition, one.value) for one in trace.changes), *before):
            found.setdefault(obj.split("/", 1)[0], {}).setdefault(condition, set()).add(value)
    return {
        kind: {one: sorted(values) for one, values in sorted(conditions.items())}
        for kind, conditions in sorted(found.items())
    }
