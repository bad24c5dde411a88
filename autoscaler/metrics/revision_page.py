"""Prometheus metrics of the autoscaler about each revision, and about starts and decisions since this process began."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from autoscaler.scaling.reasons import Rule
from clusters.base.objects import Key
from clusters.net.exposition import Buckets, Family, Histogram

START_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds in seconds, from a warm start to the download of a large model."""

KINDS: Final = ("cold", "warm")
"""Kinds of starts."""


@dataclass(frozen=True, slots=True)
class RevisionView:
    """What the autoscaler knows of a revision: replicas, slots in use, and requests that wait at an activator."""

    key: Key
    desired: int
    current: int
    ready: int
    slots_in_use: float
    queued: int


def revision_families(revisions: Iterable[RevisionView]) -> Iterator[Family]:
    """Yield the metrics of revisions. `desired` is left out before the first decision."""
    known = [(one, {"namespace": one.key.namespace, "revision": one.key.name}) for one in revisions]
    replicas = tuple(
        ({**labels, "state": state}, float(count))
        for one, labels in known
        for state, count in (("desired", one.desired), ("current", one.current), ("ready", one.ready))
        if count >= 0
    )
    yield Family("knodel_revision_replicas", "gauge", "Replicas of a revision, by state.", replicas)
    in_use = tuple((labels, one.slots_in_use) for one, labels in known)
    yield Family("knodel_revision_slots_in_use", "gauge", "Slots in use, over the short window of bursts.", in_use)
    queued = tuple((labels, float(one.queued)) for one, labels in known)
    yield Family("knodel_revision_queued_requests", "gauge", "Requests that wait at an activator.", queued)


class ScalingCounts:
    """Counts decisions by rule, and durations of starts by kind (`cold`, `warm`)."""

    def __init__(self) -> None:
        self._decisions: Counter[str] = Counter(dict.fromkeys(Rule, 0))
        self._starts = {kind: [0] * (len(START_BOUNDS) + 1) for kind in KINDS}
        self._seconds = dict.fromkeys(KINDS, 0.0)

    def record_decision(self, rule: str) -> None:
        """Count a decision by the rule that determined its number."""
        self._decisions[rule] += 1

    def record_start(self, kind: str, seconds: float) -> None:
        """Count a completed start."""
        self._starts[kind][bisect_left(START_BOUNDS, seconds)] += 1
        self._seconds[kind] += seconds

    def families(self) -> Iterator[Family | Histogram]:
        """Yield the counts."""
        decisions = tuple(({"rule": rule}, float(count)) for rule, count in sorted(self._decisions.items()))
        yield Family("knodel_scaling_decisions_total", "counter", "Changed decisions, by the last rule.", decisions)
        starts = tuple(
            Buckets({"kind": kind}, tuple(counts), self._seconds[kind]) for kind, counts in self._starts.items()
        )
        about = "Time from the request of a replica until it can serve, in seconds."
        yield Histogram("knodel_replica_start_seconds", about, START_BOUNDS, starts)
