"""The types of GPUs in usage accounts, from the labels of the nodes on which Pods run."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.usage.gpu_types import AT_ONCE, KEPT, GpuTypes
from autoscaler.usage.ledger import UsageLedger
from autoscaler.usage.meter import Spent, read_usage
from autoscaler.usage.pools import PoolUsageLedger
from autoscaler.warmpool.claims.marks import ANNOTATION_CLAIM, LABEL_POOL
from clusters.base.objects import NODE, POD, POD_AUTOSCALER, WARM_POOL, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informers
from tests.autoscaler.gpu.objects import GPU, H100, node, pod
from tests.autoscaler.usage.test_ledger import CLOCK, SOON, pod_autoscaler
from tests.support.clock import SteppedClock
from tests.support.loops import at_work
from tests.support.wait import eventually

L4 = "NVIDIA-L4"
ONE: Object = {"cpu": 1.0, GPU: 1.0}


def on(name: str, *nodes: str) -> list[Object]:
    """Return a ready Pod with a GPU on each of these nodes."""
    pods = [pod(f"{name}-{index}", one) for index, one in enumerate(nodes)]
    for one in pods:
        one["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return pods


@pytest.fixture
async def nodes(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """Provide a node with GPUs of each of two types, and one without a label."""
    for one in (node("a"), node("b", product=L4), node("c", product="")):
        await cluster.create(NODE, one, manager="test")
    return cluster


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a"], f"{GPU}:{H100}"),
        (["a", "b", "b"], f"{GPU}:{L4}"),
        (["a", "c", "c", "absent"], f"{GPU}:{H100}"),
        (["c"], GPU),
        (["absent"], GPU),
        ([""], GPU),
        ([], GPU),
    ],
)
async def test_a_replica_has_the_type_of_most_of_its_pods(
    nodes: EmbeddedCluster, names: list[str], expected: str
) -> None:
    types, pods = GpuTypes(nodes, SteppedClock(CLOCK)), on("one", *names)
    await types.learn(pods)
    assert types.with_types(ONE, pods) == {"cpu": 1.0, expected: 1.0}


async def test_a_replica_keeps_its_type_while_no_pod_tells_another_and_may_change_it(nodes: EmbeddedCluster) -> None:
    types, typed = GpuTypes(nodes, SteppedClock(CLOCK)), {f"{GPU}:{H100}": 1.0}
    await types.learn(on("one", "b", "c"))
    assert types.with_types(typed, []) == types.with_types(typed, on("one", "c")) == typed
    assert types.with_types(typed, on("one", "b")) == {f"{GPU}:{L4}": 1.0}


async def test_labels_are_read_again_after_a_while(nodes: EmbeddedCluster) -> None:
    clock = SteppedClock(CLOCK)
    types, pods = GpuTypes(nodes, clock), on("one", "c")
    await types.learn(pods)
    labels = {"metadata": {"labels": {"nvidia.com/gpu.product": L4}}}
    await nodes.patch(NODE, "c", labels, manager="test")
    await types.learn(pods)
    assert types.with_types(ONE, pods) == ONE
    clock.step(KEPT)
    await types.learn(pods)
    assert types.with_types(ONE, pods) == {"cpu": 1.0, f"{GPU}:{L4}": 1.0}


async def test_a_revision_on_many_nodes_reads_some_of_them_in_each_pass(cluster: EmbeddedCluster) -> None:
    names = [f"n{index:02}" for index in range(AT_ONCE + 2)]
    for index, name in enumerate(names):
        await cluster.create(NODE, node(name, product=H100 if index < AT_ONCE else L4), manager="test")
    types, last = GpuTypes(cluster, SteppedClock(CLOCK)), on("one", *names[AT_ONCE:])
    await types.learn(on("one", *names))
    assert types.with_types(ONE, last) == ONE
    await types.learn(on("one", *names))
    assert types.with_types(ONE, last) == {"cpu": 1.0, f"{GPU}:{L4}": 1.0}


async def test_nodes_of_pods_without_gpus_are_not_read(nodes: EmbeddedCluster) -> None:
    types = GpuTypes(nodes, SteppedClock(CLOCK))
    await types.learn([pod("web", "a", {})])
    assert types.with_types(ONE, on("one", "a")) == ONE


async def test_a_revision_that_moves_to_other_gpus_has_a_meter_for_each_type(nodes: EmbeddedCluster) -> None:
    clock = SteppedClock(CLOCK)
    stored = await nodes.create(POD_AUTOSCALER, pod_autoscaler("chat-1"), manager="test")
    deployment: Any = {"spec": {"template": pod("template")}}
    ledger = UsageLedger(nodes, clock, SOON, "test")
    for name, seconds in (("a", 40.0), ("b", 20.0), ("b", 5.0)):
        pods = on("one", name)
        await ledger.learn_gpu_types(pods)
        ledger.observe(stored, deployment, pods)
        clock.step(seconds)
    await ledger.write(stored)
    usage = read_usage(await nodes.get(POD_AUTOSCALER, "chat-1", "default"))
    assert {max(one.replica): sum(one.days.values(), Spent()) for one in usage.meters} == {
        f"{GPU}:{H100}": Spent(idle=40.0), f"{GPU}:{L4}": Spent(idle=25.0),
    }  # fmt: skip


async def test_members_of_a_pool_have_the_type_of_their_node(nodes: EmbeddedCluster) -> None:
    clock, informers = SteppedClock(CLOCK), Informers(nodes)
    ledger = PoolUsageLedger(nodes, informers[WARM_POOL], clock, SOON, "test")
    informers[POD].subscribe(ledger.on_pod)
    pool: Any = {"metadata": {"name": "fast", "namespace": "team"}, "spec": {"template": {}}}
    await nodes.create(WARM_POOL, pool, manager="test")
    member = pod("fast-1", "a", owner=None, labels={LABEL_POOL: "fast"})
    member["metadata"]["annotations"] = {ANNOTATION_CLAIM: ""}
    async with at_work(informers.run()):
        await informers.synced()
        await nodes.create(POD, member, manager="test")

        async def seen() -> bool:
            return len(informers[POD]) == 1

        await eventually(seen)
        await ledger.write()
        clock.step(30.0)
        await ledger.write()
    usage = read_usage(await nodes.get(WARM_POOL, "fast", "team"))
    assert [dict(one.replica) for one in usage.meters if one.days] == [{"cpu": 2.0, f"{GPU}:{H100}": 1.0}]
