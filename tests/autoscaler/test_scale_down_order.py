"""The replicas removed by a scale-down: idle ones first; failures do not prevent the scale-down."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.metrics.stat import Sample
from autoscaler.reconciler.observed import ObservedRevision
from autoscaler.reconciler.scale_down_order import DELETION_COST, FIRST, ScaleDownOrder, cost_changes
from autoscaler.types import Policy
from clusters.base.errors import Unavailable
from clusters.base.objects import POD, Object, annotations_of, key_of, name_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.workloads import ranking
from tests.autoscaler.world import World, running
from tests.support.clock import SteppedClock

TEST = "test"


def pod(name: str, *, ready: bool = True, age: int = 0, cost: str | None = None, deleting: bool = False) -> Object:
    """Return a replica, created `age` minutes before the youngest."""
    metadata: Object = {"name": name, "namespace": "default", "creationTimestamp": f"2026-01-01T00:{59 - age:02}:00Z"}
    if cost is not None:
        metadata["annotations"] = {DELETION_COST: cost}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    conditions = [
        {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": "2026-01-01T00:59:00Z"}
    ]
    return {
        "metadata": metadata,
        "spec": {"nodeName": "here", "containers": [{"name": "model"}]},
        "status": {"phase": "Running", "podIP": "127.0.0.1", "conditions": conditions},
    }


def changes(pods: list[Object], in_flight: dict[str, float], going: int) -> dict[str, str | None]:
    loads = {f"default/{name}": slots for name, slots in in_flight.items()}
    return {name_of(one): cost for one, cost in cost_changes(pods, loads, going)}


PODS = [pod("a", age=3), pod("b", age=2), pod("c", age=1)]


def test_those_with_the_least_in_flight_go_first() -> None:
    assert changes(PODS, {"a": 0.0, "b": 3.0, "c": 1.0}, 1) == {"a": FIRST}
    assert changes(PODS, {"a": 0.0, "b": 3.0, "c": 1.0}, 2) == {"a": FIRST, "c": FIRST}


def test_of_those_that_are_equally_busy_the_youngest_goes_first() -> None:
    assert changes(PODS, {"a": 1.0, "b": 0.0, "c": 0.0}, 1) == {"c": FIRST}


def test_one_that_was_not_read_counts_as_busy() -> None:
    assert changes(PODS, {"a": 9.0, "b": 8.0}, 1) == {"b": FIRST}


def test_where_all_are_equally_busy_nothing_is_said() -> None:
    assert changes(PODS, {"a": 1.0, "b": 1.0, "c": 1.0}, 2) == {}
    assert changes(PODS, {}, 2) == {}


@pytest.mark.parametrize("going", [-1, 0, 3, 4])
def test_where_none_goes_or_none_stays_nothing_is_said(going: int) -> None:
    assert changes(PODS, {"a": 0.0, "b": 1.0}, going) == {}


def test_those_that_are_not_ready_go_before_all_others_anyway() -> None:
    pods = [*PODS, pod("d", ready=False)]
    assert changes(pods, {"a": 0.0, "b": 1.0, "c": 2.0}, 1) == {}
    assert changes(pods, {"a": 0.0, "b": 1.0, "c": 2.0}, 2) == {"a": FIRST}


def test_those_that_leave_already_are_no_choice() -> None:
    assert changes([*PODS, pod("d", deleting=True)], {"a": 1.0, "b": 2.0, "c": 3.0, "d": 0.0}, 1) == {"a": FIRST}


def test_a_mark_stays_where_it_is_right_and_goes_where_it_is_not() -> None:
    pods = [pod("a", cost=FIRST), pod("b", cost=FIRST), pod("c", cost="7")]
    assert changes(pods, {"a": 0.0, "b": 5.0, "c": 6.0}, 1) == {"b": None}


@given(st.data())
def test_whom_kubernetes_ends_are_then_those_with_the_least_in_flight(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    loads = {f"p{n}": float(data.draw(st.integers(0, 3))) for n in range(count)}
    pods = [pod(name, age=data.draw(st.integers(0, 59))) for name in loads]
    going = data.draw(st.integers(0, count))
    found = changes(pods, loads, going)
    assert len(found) <= going
    for one in pods:
        one["metadata"]["annotations"] = {DELETION_COST: found[name_of(one)]} if name_of(one) in found else {}
    gone = {name_of(one) for one in ranking.pods_to_delete(pods, going)}
    assert sorted(loads[name] for name in gone) == sorted(loads.values())[:going]


# --- on a cluster ---


@pytest.fixture
async def pods(cluster: EmbeddedCluster) -> AsyncIterator[list[Object]]:
    for name in ("a", "b", "c"):
        await cluster.create(POD, pod(name), manager=TEST)
        status = {"status": pod(name)["status"]}
        await cluster.patch(POD, name, status, "default", manager=TEST, subresource="status")
    yield list((await cluster.list(POD, "default")).items)


def observed(pods: list[Object]) -> ObservedRevision:
    return ObservedRevision({"metadata": {}}, {"spec": {"replicas": len(pods)}}, None, (), pods)


def readings(**in_flight: float) -> dict[str, Sample]:
    return {f"default/{name}": Sample(0.0, 0.0, 0.0, slots, 0.0) for name, slots in in_flight.items()}


async def costs(cluster: EmbeddedCluster) -> dict[str, str]:
    found = (await cluster.list(POD, "default")).items
    return {name_of(one): annotations_of(one)[DELETION_COST] for one in found if DELETION_COST in annotations_of(one)}


async def test_the_mark_is_written_on_those_to_go_and_on_no_other(cluster: EmbeddedCluster, pods: list[Object]) -> None:
    await ScaleDownOrder(cluster, TEST).prepare(observed(pods), 1, readings(a=2.0, b=0.0, c=1.0))
    assert await costs(cluster) == {"b": FIRST, "c": FIRST}


async def test_a_pod_that_is_gone_meanwhile_keeps_nobody_from_being_marked(
    cluster: EmbeddedCluster, pods: list[Object]
) -> None:
    await cluster.delete(POD, "b", "default", grace_period=0)
    await ScaleDownOrder(cluster, TEST).prepare(observed(pods), 1, readings(a=2.0, b=0.0, c=1.0))
    assert await costs(cluster) == {"c": FIRST}


async def test_before_a_revision_loses_a_replica_the_idle_one_is_marked(cluster: EmbeddedCluster) -> None:
    policy = Policy(min_replicas=3, max_replicas=3, scale_to_zero_after=600.0)
    async with running(World(cluster, SteppedClock())) as world:
        await world.create_revision(policy, replicas=3)
        busy, idle, other = [await world.start_pod() for _ in range(3)]
        world.replicas.work(busy, 3.0)
        world.replicas.work(other, 1.0)
        await world.until(world.mode, "Serve")
        await world.pass_time(3.0)
        await world.set_policy(dataclasses.replace(policy, min_replicas=2, max_replicas=2).to_json())
        await world.until(world.replicas_asked, 2)
        assert await costs(cluster) == {idle: FIRST}


class Refusing:
    """A cluster that rejects every write."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def patch(self, kind: Any, name: str, *args: Any, **more: Any) -> Object:
        self.asked.append(name)
        raise Unavailable(f"{name}: no room on the disk")


async def test_a_cluster_that_refuses_stops_nothing(pods: list[Object]) -> None:
    refusing = Refusing()
    await ScaleDownOrder(refusing, TEST).prepare(observed(pods), 2, readings(a=2.0, b=0.0, c=1.0))  # type: ignore[arg-type]
    assert refusing.asked == ["b"]

    assert str(key_of(pods[1])) == "default/b"
