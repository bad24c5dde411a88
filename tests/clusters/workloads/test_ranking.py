"""The order in which Pods are deleted, and their names and hashes."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.objects import Object, name_of
from clusters.embedded.workloads.ranking import DELETION_COST, deletion_cost, is_active, pods_to_delete
from clusters.embedded.workloads.template import make_replica_set, pod_name, template_hash
from tests.clusters.workloads.conftest import deployment


def pod(
    name: str = "pod",
    *,
    node: str = "node",
    phase: str = "Running",
    ready: str | None = "2026-01-01T00:00:00Z",
    cost: str | None = None,
    restarts: int = 0,
    created: str = "2026-01-01T00:00:00Z",
) -> Object:
    """Return a Pod. `ready` is the time since which it is ready, None if it is not."""
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": ready}] if ready is not None else []
    annotations = {DELETION_COST: cost} if cost is not None else {}
    return {
        "metadata": {"name": name, "creationTimestamp": created, "annotations": annotations},
        "spec": {"nodeName": node} if node else {},
        "status": {
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": [{"name": "c", "restartCount": restarts}],
        },
    }


@pytest.mark.parametrize(
    ("goes", "stays"),
    [
        ({"node": "", "cost": "9"}, {"phase": "Pending", "ready": None}),
        ({"phase": "Pending", "cost": "9"}, {"phase": "Unknown", "ready": None}),
        ({"phase": "Unknown", "cost": "9"}, {"ready": None}),
        ({"ready": None, "cost": "9"}, {"cost": "-9"}),
        ({"cost": "-1", "ready": "2026-01-01T00:00:00Z"}, {"cost": "0", "ready": "2026-01-02T00:00:00Z"}),
        ({"ready": "2026-01-02T00:00:00Z"}, {"ready": "2026-01-01T00:00:00Z", "restarts": 9}),
        ({"restarts": 1, "created": "2026-01-01T00:00:00Z"}, {"created": "2026-01-02T00:00:00Z"}),
        ({"created": "2026-01-02T00:00:00Z"}, {"created": "2026-01-01T00:00:00Z"}),
    ],
)
def test_each_rule_takes_precedence_over_the_next(goes: dict[str, Any], stays: dict[str, Any]) -> None:
    one, other = pod("z", **goes), pod("a", **stays)
    for pods in ([one, other], [other, one]):
        assert [name_of(gone) for gone in pods_to_delete(pods, 1)] == ["z"]


def test_of_equal_pods_the_first_name_goes() -> None:
    assert [name_of(gone) for gone in pods_to_delete([pod("b"), pod("a"), pod("c")], 2)] == ["a", "b"]


days = st.integers(1, 3).map(lambda day: f"2026-01-0{day}T00:00:00Z")
pods_strategy = st.lists(
    st.builds(
        pod,
        node=st.sampled_from(["", "node"]),
        phase=st.sampled_from(["Pending", "Unknown", "Running"]),
        ready=st.none() | days | st.just(""),
        cost=st.none() | st.integers(-2, 2).map(str) | st.just("nonsense"),
        restarts=st.integers(0, 2),
        created=days | st.just(""),
    ),
    max_size=8,
)


def kubernetes_less(one: Object, other: Object) -> bool:
    """`ActivePodsWithRanks.Less`, written again as Kubernetes writes it: one rule after the other."""

    def ready_since(of: Object) -> str | None:
        conditions = of["status"]["conditions"]
        return str(conditions[0]["lastTransitionTime"]) if conditions else None

    def after_or_zero(left: str, right: str) -> bool:
        return not left if not left or not right else left > right

    if bool(one["spec"]) != bool(other["spec"]):
        return not one["spec"]
    order = ["Pending", "Unknown", "Running"]
    if one["status"]["phase"] != other["status"]["phase"]:
        return order.index(one["status"]["phase"]) < order.index(other["status"]["phase"])
    since, their_since = ready_since(one), ready_since(other)
    if (since is None) != (their_since is None):
        return since is None
    if deletion_cost(one) != deletion_cost(other):
        return deletion_cost(one) < deletion_cost(other)
    if since is not None and their_since is not None and since != their_since:
        return after_or_zero(since, their_since)
    restarts, their_restarts = (of["status"]["containerStatuses"][0]["restartCount"] for of in (one, other))
    if restarts != their_restarts:
        return bool(restarts > their_restarts)
    created, their_created = (str(of["metadata"]["creationTimestamp"]) for of in (one, other))
    return created != their_created and after_or_zero(created, their_created)


@given(pods_strategy, st.integers(0, 8), st.randoms())
def test_what_goes_is_never_worth_more_than_what_stays(pods: list[Object], number: int, shuffle: random.Random) -> None:
    for index, one in enumerate(pods):
        one["metadata"]["name"] = f"pod-{index}"
    gone = pods_to_delete(pods, number)
    assert len(gone) == min(number, len(pods))
    stays = [one for one in pods if one not in gone]
    assert not any(kubernetes_less(kept, lost) for kept in stays for lost in gone)
    again = list(pods)
    shuffle.shuffle(again)
    assert pods_to_delete(again, number) == gone


@pytest.mark.parametrize(("text", "cost"), [("5", 5), ("-7", -7), ("x", 0), ("1.5", 0), ("99999999999", 0), ("", 0)])
def test_a_deletion_cost_is_an_int32_or_nothing(text: str, cost: int) -> None:
    assert deletion_cost(pod(cost=text)) == cost


def test_ended_and_deleted_pods_are_not_active() -> None:
    assert is_active(pod())
    assert is_active({"metadata": {"name": "new"}, "spec": {}})
    assert not is_active(pod(phase="Failed"))
    assert not is_active(pod(phase="Succeeded"))
    deleted = pod()
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not is_active(deleted)


def test_a_hash_depends_on_the_template_and_not_on_the_order_of_its_keys() -> None:
    assert template_hash({"a": 1, "b": {"c": 2, "d": 3}}) == template_hash({"b": {"d": 3, "c": 2}, "a": 1})
    assert template_hash({"a": 1}) != template_hash({"a": 2})
    assert re.fullmatch(r"[b-df-hj-np-tv-z2456789]{10}", template_hash({"a": 1}))


def test_making_a_replica_set_does_not_change_the_deployment() -> None:
    made = deployment()
    make_replica_set(made | {"metadata": {**made["metadata"], "uid": "u"}})
    assert made == deployment()


def test_pod_names_fit_a_host_name() -> None:
    long = {"metadata": {"name": "m" * 200}}
    assert re.fullmatch(r"m{57}-[a-z0-9]{5}", pod_name(long, random.Random(1)))
