"""Where the embedded cluster differs from real Knative on purpose, and why: one table, kept short by its test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from tests.golden.comparison import Vocabulary
from tests.golden.reduction import Golden

Paths = Mapping[str, Mapping[str, Sequence[str]]]
"""Object → condition → values in order."""


@dataclass(frozen=True, slots=True)
class Deliberate:
    """One difference, in the cases and at the objects that these patterns match."""

    case: str
    object: str
    condition: str
    reason: str
    lacks: tuple[str, ...] = ()  # values that Knative always shows, and we need not
    goes: tuple[str, ...] = ()  # the required sequence, instead of Knative's
    shows: tuple[str, ...] = ()  # values that Knative never shows
    ends: str = ""  # the final value, instead of Knative's


_NO_REGISTRY = "no registry is asked for digests here: an image is one that the kubelet knows by name"
_ONE_WRITE = "the data plane reports an Ingress once, when a probe has seen it in force: a status between costs a write"
_FORGETFUL = (
    "Knative's autoscaler forgets its last decision when the initial scale is reached (MultiScaler.Update), and puts "
    "the activator into the path again until its next tick; ours goes on with what it knows"
)
_OWN = "a condition of ours, of which nothing of Knative's follows: a replica does not start, beside others that serve"
_GIVEN_UP = "TimedOut stays, so that a start that was given up is known as one until it is tried again"


def _unless_resolved(condition: str, value: str = "Unknown ResolvingDigests") -> Deliberate:
    return Deliberate("*", "Revision/*", condition, _NO_REGISTRY, lacks=(value,))


def _at_once(obj: str, condition: str) -> Deliberate:
    return Deliberate("*", obj, condition, _ONE_WRITE, lacks=("Unknown Uninitialized",))


def _given_up(obj: str, condition: str) -> Deliberate:
    lacks = ("False NoTraffic",)
    return Deliberate("broken-version", obj, condition, _GIVEN_UP, lacks=lacks, ends="False TimedOut")


DELIBERATE = (
    _unless_resolved("Ready"),
    _unless_resolved("ResourcesAvailable"),
    _unless_resolved("ContainerHealthy", "Unknown"),
    _at_once("Route/*", "IngressReady"),
    _at_once("Route/*", "Ready"),
    _at_once("Service/*", "RoutesReady"),
    _at_once("Service/*", "Ready"),
    Deliberate(
        "second-version",
        "ServerlessService/*-00002",
        "ActivatorEndpointsPopulated",
        _FORGETFUL,
        goes=("True ActivatorEndpointsPopulated", "False ActivatorEndpointsPopulated"),
    ),
    _given_up("PodAutoscaler/*-00002", "Active"),
    _given_up("PodAutoscaler/*-00002", "Ready"),
    _given_up("Revision/*-00002", "Active"),
    Deliberate(
        "broken-version", "PodAutoscaler/*-00002", "ReplicasStarted", _OWN, shows=("False CrashLoopBackOff", "True")
    ),
)


def excused(golden: Golden, table: Iterable[Deliberate]) -> Golden:
    """The golden trace without what the table excuses."""
    required, final = golden.required, golden.final
    for one in table:
        if fnmatchcase(golden.case, one.case):
            required = _without(required, one)
            final = _ending(final, one)
    return replace(golden, required=required, final=final)


def widened(seen: Vocabulary, table: Iterable[Deliberate]) -> Vocabulary:
    """All values that may be shown."""
    wide = {kind: dict(conditions) for kind, conditions in seen.items()}
    for one in table:
        known = wide.setdefault(one.object.split("/", 1)[0], {})
        known[one.condition] = known.get(one.condition, frozenset()) | set(one.shows)
    return wide


def _without(
    required: Mapping[str, Mapping[str, Sequence[str]]], one: Deliberate
) -> dict[str, dict[str, Sequence[str]]]:
    return {
        obj: {
            condition: _wanted(values, one) if _is_at(one, obj, condition) else values
            for condition, values in conditions.items()
        }
        for obj, conditions in required.items()
    }


def _wanted(values: Sequence[str], one: Deliberate) -> Sequence[str]:
    return one.goes or tuple(value for value in values if value not in one.lacks)


def _ending(final: Mapping[str, Mapping[str, str]], one: Deliberate) -> dict[str, dict[str, str]]:
    return {
        obj: {
            condition: one.ends if one.ends and _is_at(one, obj, condition) else value
            for condition, value in conditions.items()
        }
        for obj, conditions in final.items()
    }


def _is_at(one: Deliberate, obj: str, condition: str) -> bool:
    return fnmatchcase(obj, one.object) and fnmatchcase(condition, one.condition)
