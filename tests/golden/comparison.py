"""Whether a trace of the embedded cluster could be real Knative's: all differences, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.golden.reduction import Golden, precedes
from tests.golden.trace import Trace

Vocabulary = Mapping[str, Mapping[str, frozenset[str]]]
"""Kind → condition → values that real Knative has shown in some case."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that the trace has, or lacks, and real Knative not; `at` is `Kind/name condition`."""

    at: str
    said: str

    def __str__(self) -> str:
        return f"{self.at}: {self.said}"


def vocabulary(goldens: Iterable[Golden]) -> Vocabulary:
    """All that real Knative has shown in any case."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    for golden in goldens:
        for kind, conditions in golden.seen.items():
            for condition, values in conditions.items():
                known = found.setdefault(kind, {})
                known[condition] = known.get(condition, frozenset()) | frozenset(values)
    return found


def differences(golden: Golden, trace: Trace, seen: Vocabulary) -> list[Difference]:
    """What is wrong with `trace`; empty when it could be Knative's."""
    return [*_missing(golden, trace), *_ends(golden, trace), *_orders(golden, trace), *_strange(trace, seen)]


def is_subsequence(wanted: Sequence[str], values: Iterable[str]) -> bool:
    """Whether all of `wanted` are in `values`, in this order."""
    rest = iter(values)
    return all(value in rest for value in wanted)


def _missing(golden: Golden, trace: Trace) -> Iterator[Difference]:
    for obj, conditions in golden.required.items():
        for condition, wanted in conditions.items():
            values = trace.values(obj, condition)
            if not is_subsequence(wanted, values):
                yield Difference(f"{obj} {condition}", f"was {_path(values)}, where Knative goes {_path(wanted)}")


def _ends(golden: Golden, trace: Trace) -> Iterator[Difference]:
    for obj, conditions in golden.final.items():
        for condition, wanted in conditions.items():
            value = trace.final.get(obj, {}).get(condition)
            if value != wanted:
                yield Difference(f"{obj} {condition}", f"ends as {value!r}, Knative's as {wanted!r}")


def _orders(golden: Golden, trace: Trace) -> Iterator[Difference]:
    for condition, first, then in golden.orders:
        if not precedes(trace, condition, first, then):
            yield Difference(f"{then} {condition}", f"settles before {first} has, in Knative always after it")


def _strange(trace: Trace, seen: Vocabulary) -> Iterator[Difference]:
    for obj, condition, value in dict.fromkeys((one.object, one.condition, one.value) for one in trace.changes):
        if value not in seen.get(obj.split("/", 1)[0], {}).get(condition, frozenset()):
            yield Difference(f"{obj} {condition}", f"was {value!r}, which Knative never showed")


def _path(values: Sequence[str]) -> str:
    return " → ".join(values) or "nothing"
