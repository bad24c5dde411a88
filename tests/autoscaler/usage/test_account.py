"""One account along a written timeline: the usage of its Pods, by purpose."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.metrics.stat import Sample, Tokens
from autoscaler.usage.account import Account, ClockReading, is_held, replica_of
from autoscaler.usage.meter import BESIDE_ANNOTATION, Spent, Usage
from clusters.base.objects import timestamp

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
CORE = {"cpu": 1.0}


def at(seconds: float) -> ClockReading:
    return ClockReading(1_000.0 + seconds, START + timedelta(seconds=seconds))


def pod(name: str = "a", *, ready: bool = True, node: str = "n1", made: float = 0.0, **status: Any) -> Any:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    metadata = {"name": name, "namespace": "default", "creationTimestamp": timestamp(at(made).wall)}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"conditions": conditions, **status}}


def sample(seconds: float, busy: float, tokens: Tokens | None = None) -> Sample:
    return Sample(1_000.0 + seconds, busy, 0.0, 0.0, 0.0, tokens=tokens)


def total(account: Account) -> Spent:
    return sum((spent for one in account.usage.meters for spent in one.days.values()), Spent())


def opened(**more: Any) -> Account:
    return Account(Usage(), replica=CORE, **more)


def test_a_replica_serves_while_it_has_requests_and_is_idle_otherwise() -> None:
    account = opened()
    account.observe([pod()], at(0))
    account.record_readings({"a": sample(0, 0.0)}, at(0))
    account.record_readings({"a": sample(10, 8.0)}, at(10))  # busy for 8 of 10 s
    account.record_readings({"a": sample(20, 8.0)}, at(20))
    assert total(account) == Spent(serving=8.0, idle=12.0)


def test_a_replica_with_many_requests_at_once_serves_no_longer_than_the_time_that_passed() -> None:
    account = opened()
    account.observe([pod("a"), pod("b")], at(0))
    account.record_readings({"a": sample(0, 0.0), "b": sample(0, 0.0)}, at(0))
    account.record_readings({"a": sample(10, 160.0), "b": sample(10, 0.0)}, at(10))  # 16 slots of one replica
    assert total(account) == Spent(serving=10.0, idle=10.0)


def test_a_replica_that_starts_or_ends_holds_its_node_all_the_same() -> None:
    account = opened()
    account.observe([pod(ready=False, node="")], at(0))  # no node yet: costs nothing
    account.observe([pod(ready=False)], at(5))
    account.observe([pod()], at(8))
    account.observe([], at(20))
    assert total(account) == Spent(starting=3.0, idle=12.0)


def test_all_that_a_version_on_trial_holds_is_canary_until_it_is_none() -> None:
    account = opened()
    account.observe([pod(ready=False)], at(0), canary=True)
    account.observe([pod()], at(3), canary=True)
    account.record_readings({"a": sample(3, 0.0)}, at(3))
    account.record_readings({"a": sample(10, 7.0)}, at(10))
    account.observe([pod()], at(10), canary=False)
    account.record_readings({"a": sample(15, 12.0)}, at(15))
    assert total(account) == Spent(serving=5.0, canary=10.0)


def test_passes_between_two_readings_take_nothing_from_what_served() -> None:
    account = opened()
    account.observe([pod()], at(0))
    account.record_readings({"a": sample(0, 0.0)}, at(0))
    for tick in range(1, 11):
        account.observe([pod()], at(tick - 0.5))
        account.record_readings({"a": sample(tick, float(tick))}, at(tick))
    assert total(account) == Spent(serving=10.0)


def test_a_restarted_replica_begins_anew() -> None:
    account = opened()
    account.observe([pod()], at(0))
    account.record_readings({"a": sample(0, 500.0)}, at(0))
    account.record_readings({"a": sample(10, 2.0)}, at(10))
    account.record_readings({"a": sample(20, 5.0)}, at(20))
    assert total(account) == Spent(serving=3.0, idle=17.0)


def test_what_was_held_while_nobody_counted_is_made_up_for_by_the_hour() -> None:
    usage = Usage(at(0).wall)
    usage.meter(CORE).add(Spent(serving=100.0), at(0).wall)
    account = Account(usage, replica=CORE)
    account.observe([pod("old"), pod("new", made=5_400.0)], at(7_200))
    assert total(account) == Spent(serving=100.0, idle=7_200.0 + 1_800.0)
    hours = account.usage.meters[0].hours
    assert {name: spent.idle for name, spent in hours.items()} == {"2026-01-01T12": 3600.0, "2026-01-01T13": 5400.0}


def test_the_first_look_ever_makes_nothing_up() -> None:
    account = opened()
    account.observe([pod(made=0.0)], at(7_200))
    assert total(account) == Spent()


def test_it_is_due_once_an_interval_while_pods_are_held_and_once_more_after_the_last() -> None:
    account = opened()
    account.observe([pod()], at(0))
    assert account.due(at(0), 60.0) == 0.0
    account.saved, account.saved_at = account.changes, at(0).monotonic
    assert account.due(at(1), 60.0) == 59.0
    account.observe([], at(30))
    assert account.due(at(30), 60.0) == 30.0
    account.saved, account.saved_at = account.changes, at(60).monotonic
    assert account.due(at(61), 60.0) is None


@pytest.mark.parametrize("canary", [False, True])
def test_the_tokens_of_a_language_model_are_added(canary: bool) -> None:
    account = opened()
    account.observe([], at(0), canary=canary)
    account.observe([pod()], at(5), canary=canary)
    before = account.changes
    for seconds in (5, 6, 7):
        total_of_pod = Tokens(7.0 * seconds, 3.0 * seconds)
        account.record_readings({"default/a": sample(seconds, 0.0, total_of_pod)}, at(seconds))
    assert account.changes > before
    idle = {"canary" if canary else "idle": 2.0}
    assert total(account) == Spent(**idle, prompt_tokens=49.0, completion_tokens=21.0)


def test_silent_replicas_are_idle_when_the_account_is_written() -> None:
    account = opened()
    account.observe([pod()], at(0))
    account.due(at(60), 60.0)
    assert total(account) == Spent(idle=60.0)


@given(st.lists(st.tuples(st.floats(0.1, 50.0), st.integers(0, 3), st.integers(0, 3), st.floats(0.0, 100.0))))
def test_what_is_counted_is_the_integral_of_the_pods_that_were_held(steps: list[tuple[float, int, int, float]]) -> None:
    account, now, expected, held, busy = opened(), 0.0, 0.0, 0, 0.0
    for seconds, ready, starting, work in steps:
        now, expected, busy = now + seconds, expected + held * seconds, busy + work
        account.record_readings({"r0": sample(now, busy)}, at(now))
        pods = [pod(f"r{n}") for n in range(ready)] + [pod(f"s{n}", ready=False) for n in range(starting)]
        account.observe(pods, at(now))
        held = ready + starting
    assert total(account).pod_seconds == pytest.approx(expected, abs=1e-6)


def test_a_pod_is_held_from_its_node_to_its_end() -> None:
    assert is_held(pod(ready=False))
    assert is_held(pod(node=""))
    assert not is_held(pod(ready=False, node=""))
    assert not is_held(pod(phase="Succeeded"))
    assert not is_held(pod(phase="Failed"))


def test_a_replica_asks_for_what_its_containers_ask_for_and_for_accelerators_by_their_limits() -> None:
    server = {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 2}}}
    proxy = {"resources": {"requests": {"cpu": "25m"}, "limits": {"nvidia.com/gpu": "all"}}}
    found = replica_of({"spec": {"containers": [server, proxy]}})
    assert found == {"cpu": 0.525, "memory": 2.0**30, "nvidia.com/gpu": 2.0}
    assert replica_of({}) == {}


def test_the_workers_of_a_replica_are_added() -> None:
    server = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    template = {
        "metadata": {"annotations": {BESIDE_ANNOTATION: '{"cpu":16.0,"memory":1024.0,"nvidia.com/gpu":2.0}'}},
        "spec": {"containers": [server]},
    }
    assert replica_of(template) == {"cpu": 17.0, "memory": 2.0**30 + 1024, "nvidia.com/gpu": 2.0}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"cpu":"many"}', '{"cpu":-1}', '{"cpu":NaN}', "[" * 9999])
def test_an_unreadable_annotation_adds_nothing(text: str) -> None:
    assert replica_of({"metadata": {"annotations": {BESIDE_ANNOTATION: text}}}) == {}
