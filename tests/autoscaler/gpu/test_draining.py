"""Nodes that could be drained: on paper, all their Pods fit on GPUs of the same type elsewhere."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.gpu.draining import plan_drains
from autoscaler.gpu.inventory import make_inventory
from clusters.base.objects import Object
from tests.autoscaler.gpu.objects import GPU, node, pod

TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


def plan(nodes: list[Object], pods: list[Object]) -> dict[str, dict[str, str]]:
    """Return the moves by drained node."""
    return {
        drain.node: {move.pod.key.name: move.to for move in drain.moves}
        for drain in plan_drains(make_inventory(nodes, pods))
    }


def test_the_pods_of_the_emptiest_node_fit_elsewhere() -> None:
    pods = [pod("one", "a", 2), pod("two", "b", 5), pod("three", "c", 6)]
    assert plan([node("a"), node("b"), node("c")], pods) == {"a": {"one": "c"}}  # it holds the most


def test_empty_nodes_could_be_drained_and_take_no_pods() -> None:
    assert plan([node("a"), node("b")], [pod("one", "b")]) == {"a": {}}
    assert plan([node("a", 0)], []) == {"a": {}}


def test_several_nodes_could_be_drained_together_while_there_is_room_for_all() -> None:
    nodes = [node("a", 2), node("b", 2), node("c", 8), node("d", 2)]
    pods = [pod("one", "a"), pod("two", "b"), pod("three", "c", 6), pod("four", "d")]
    assert plan(nodes, pods) == {"a": {"one": "c"}, "b": {"two": "c"}}


def test_all_pods_of_a_node_fit_or_it_is_not_drained() -> None:
    nodes, pods = [node("a", 8), node("b", 8)], [pod("one", "a", 3), pod("two", "a", 2), pod("three", "b", 5)]
    assert plan(nodes, pods) == {}
    assert plan([*nodes, node("c", 2, unschedulable=True)], [*pods, pod("four", "c", 2)]) == {"c": {"four": "a"}}


@pytest.mark.parametrize(
    ("other", "more"),
    [
        (node("b", product="NVIDIA-L4"), {}),
        (node("b", ready="False"), {}),
        (node("b", unschedulable=True), {}),
        (node("b", taints=[TAINT]), {}),
        (node("b", taints=[TAINT]), {"tolerations": [{"key": "team", "value": "b"}]}),
        (node("b", taints=[TAINT]), {"tolerations": [{"key": "team", "operator": "Exists", "effect": "NoExecute"}]}),
        (node("b"), {"nodeSelector": {"kubernetes.io/hostname": "a"}}),
    ],
)
def test_a_node_that_the_pod_may_not_use_has_no_room_for_it(other: Object, more: dict[str, Any]) -> None:
    busy = pod("two", "b", 7, owner=None)
    assert plan([node("a"), other], [pod("one", "a", **more), busy]) == {}


@pytest.mark.parametrize(
    ("taint", "more"),
    [
        (TAINT, {"tolerations": [{"key": "team", "value": "a"}]}),
        (TAINT, {"tolerations": [{"operator": "Exists"}]}),
        ({**TAINT, "effect": "PreferNoSchedule"}, {}),
        ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, {}),
    ],
)
def test_a_tolerated_taint_is_none(taint: Object, more: dict[str, Any]) -> None:
    assert plan([node("a"), node("b", taints=[taint])], [pod("one", "a", **more), pod("two", "b", 7)]) == {
        "a": {"one": "b"}
    }


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), max_size=24),
    st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_drained_nodes_are_empty_afterwards_and_no_node_holds_more_than_it_has(
    placed: list[tuple[int, int]], ready: list[bool]
) -> None:
    nodes = [node(f"n{index}", ready=str(is_ready)) for index, is_ready in enumerate(ready)]
    room, pods = [8] * 5, []
    for index, (on, units) in enumerate(placed):
        if room[on] >= units:
            room[on] -= units
            pods.append(pod(f"p{index}", f"n{on}", units))
    drains = plan(nodes, pods)
    where = {one["metadata"]["name"]: one["spec"]["nodeName"] for one in pods}
    for drained, moves in drains.items():
        assert moves.keys() == {name for name, on in where.items() if on == drained}
        assert all(to not in drains and ready[int(to[1:])] for to in moves.values())
        where |= moves
    held = Counter[str]()
    for one in pods:
        held[where[one["metadata"]["name"]]] += int(one["spec"]["containers"][0]["resources"]["limits"][GPU])
    assert all(units <= 8 for units in held.values())


def test_pods_that_nobody_creates_again_keep_their_node_until_they_are_deleted() -> None:
    bare, daemon = pod("one", "a", owner=None), pod("one", "a", owner=("DaemonSet", "probe"))
    full = pod("two", "b", 7, owner=None)
    assert plan([node("a"), node("b")], [bare, full]) == {}
    assert plan([node("a"), node("b")], [daemon, full]) == {"a": {}}
    bare["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert plan([node("a"), node("b")], [bare, full]) == {"a": {}}
