"""The load of Models between two readings of their replicas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.metrics.response_latency import LatencyTotals, upper_edge
from autoscaler.metrics.stat import Sample, Tokens
from clusters.base.objects import Key, Object
from serving.client.models.load import Load, Reading, ReplicaReading, loads

IRIS = Key("default", "iris")
MODEL: Object = {"metadata": {"name": "iris", "namespace": "default"}}
FAST, SLOW = -56, -24  # buckets of 7.8 ms and 125 ms


def replica(requests: int, errors: int = 0, process: str = "p", tokens: Tokens | None = None, **latency: int) -> Any:
    """Return the pages of a replica with so many `fast` and `slow` responses."""
    counts = {FAST: latency.get("fast", 0), SLOW: latency.get("slow", 0)}
    stats = Sample(0.0, 0.0, float(requests), active=1.0, queued=2.0, tokens=tokens)
    return ReplicaReading(IRIS, stats, LatencyTotals(process, counts, requests, errors))


def reading(at: float, queued: float = 0.0, refused: str = "", **replicas: ReplicaReading) -> Reading:
    pods = {Key("default", name): one for name, one in replicas.items()}
    return Reading(at, [MODEL], pods, {IRIS: queued}, refused)


def load(before: Reading | None, after: Reading) -> Load:
    return loads(before, after)[IRIS]


def test_rates_errors_and_percentiles_are_those_between_two_readings() -> None:
    before = reading(10.0, a=replica(100, 1, fast=100), b=replica(0))
    after = reading(12.0, a=replica(190, 3, fast=188, slow=2), b=replica(10, fast=10), queued=3.0)
    found = load(before, after)
    assert (found.rate, found.errors) == (50.0, 0.02)
    assert (found.p50, found.p99) == (upper_edge(FAST), upper_edge(SLOW))
    assert (found.busy, found.queued, found.tokens) == (2.0, 7.0, None)


def test_tokens_are_counted_for_language_models() -> None:
    before = reading(0.0, a=replica(1, tokens=Tokens(10.0, 0.0)))
    assert load(before, reading(2.0, a=replica(2, tokens=Tokens(20.0, 30.0)))).tokens == 20.0


@pytest.mark.parametrize("former", [{}, {"a": replica(4_000, process="another")}])
def test_a_process_that_is_new_adds_no_old_requests(former: dict[str, Any]) -> None:
    assert load(reading(0.0, **former), reading(1.0, a=replica(5_000, fast=5_000))).rate == 0.0


def test_numbers_that_are_not_known_are_none() -> None:
    assert load(None, reading(1.0, a=replica(5))) == Load(busy=1.0, queued=2.0)
    assert load(reading(0.0), reading(1.0, refused="no right")) == Load()
    assert load(reading(0.0), replace(reading(1.0), unread=frozenset({IRIS}))) == Load()
    idle = load(reading(0.0, a=replica(5)), reading(1.0, a=replica(5)))
    assert (idle.rate, idle.errors, idle.p50, idle.p99) == (0.0, None, None, None)
