"""Autoscalers that end and start again, two in turn, or none at all: the objects are the only memory.

These tests run autoscalers of their own; where one is installed it stands by meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from autoscaler.main import PROGRAM
from autoscaler.types import CLASS
from clusters.base.api import Cluster
from clusters.base.errors import Conflict
from clusters.base.objects import POD_AUTOSCALER, SERVERLESS_SERVICE
from tests.cluster.calling import Answers, Caller
from tests.cluster.own_autoscaler import own_autoscaler
from tests.cluster.plain import FIRST, NAME, Plain
from tests.support.kubernetes import KNATIVE_CLASS, KubeTarget
from tests.support.replicas import ReplicaProcess, replica, until_ready
from tests.support.wait import eventually

pytestmark = pytest.mark.usefixtures("alone")

WINDOW = {"window": "6s"}
AT_REST = 4.0  # s without a write: several ticks, and longer than any back-off of a first failure
TAKEN_OVER = 20.0  # s: a Lease's duration, twice
KPA = "kpa"


async def test_a_new_autoscaler_over_a_world_at_rest_writes_nothing(cluster: Cluster, plain: Plain) -> None:
    async with own_autoscaler(cluster, plain.namespace) as first:
        await plain.create("one", {"min-scale": "1", **WINDOW})
        await plain.create("none", {"initial-scale": "0", **WINDOW})
        await asyncio.gather(plain.ready("one"), plain.ready("none"))
        await at_rest(first.writes)
    async with own_autoscaler(cluster, plain.namespace) as second:
        await asyncio.sleep(AT_REST)
    assert second.writes == []


async def at_rest(writes: list[Any]) -> None:
    """Return once nothing has been written for a while."""
    seen = -1
    while seen != len(writes):
        seen = len(writes)
        await asyncio.sleep(AT_REST)


@pytest.mark.fault("A1")
async def test_what_one_autoscaler_has_begun_the_next_one_ends_and_without_any_all_serve_on(
    cluster: Cluster, plain: Plain, caller: Caller
) -> None:
    answers = Answers()
    async with own_autoscaler(cluster, plain.namespace):  # ends while the first replica starts
        await plain.create(NAME, {"target-burst-capacity": "0", **WINDOW})
        await plain.until(lambda: plain.get(SERVERLESS_SERVICE))
    async with own_autoscaler(cluster, plain.namespace):  # ends on the way to zero
        await plain.ready()
        await plain.says(POD_AUTOSCALER, FIRST, "Active", "False", "NoTraffic")
        assert plain.asked() == 1

    await caller.ask(answers)  # nobody acts: what serves goes on
    await plain.create(KPA, WINDOW, autoscaler_class=KNATIVE_CLASS)  # … and Knative's own class knows nothing of it
    await plain.ready(KPA)
    await caller.ask(answers, KPA)

    async with own_autoscaler(cluster, plain.namespace):  # ends at zero
        await plain.at_zero()
    async with asyncio.TaskGroup() as waiting:
        await plain.at_zero(f"{KPA}-00001")
        waiting.create_task(caller.ask(answers))
        await caller.ask(answers, KPA)
        async with own_autoscaler(cluster, plain.namespace):  # ends as the replica starts
            await plain.scaled(1)
    async with own_autoscaler(cluster, plain.namespace):
        await plain.says(POD_AUTOSCALER, FIRST, "Active", "True")
    assert answers.failures == [] and answers.total == 4


@pytest.mark.fault("A1")
async def test_a_killed_leader_is_followed_by_the_other_one(
    plain: Plain, caller: Caller, target: KubeTarget, tmp_path: Any
) -> None:
    arguments = ["--kubeconfig", str(target.kubeconfig), "--kube-context", target.context]
    arguments += ["--namespace", plain.namespace]
    environ = {"HOST": "127.0.0.1", "POD_NAMESPACE": plain.namespace}
    answers = Answers()
    async with (
        replica(PROGRAM.name, arguments, tmp_path, "one", **environ) as one,
        replica(PROGRAM.name, arguments, tmp_path, "two", **environ) as two,
    ):
        await until_ready(one, two)
        leader, other = await in_order(one, two)
        await plain.create(NAME, WINDOW)
        await plain.ready()
        await plain.at_zero()
        leader.process.kill()
        await caller.ask(answers)  # waits for the other one's lead
        assert await other.leads()
        await plain.says(POD_AUTOSCALER, FIRST, "Active", "True")
    assert answers.failures == []


async def in_order(*replicas: ReplicaProcess) -> list[ReplicaProcess]:
    """The replicas, the one that leads first."""

    async def leading() -> list[ReplicaProcess]:
        return [one for one in replicas if await one.leads()]

    leaders = await eventually(leading, TAKEN_OVER)
    return sorted(replicas, key=lambda one: one not in leaders)


class Contended:
    """A cluster on which the first writes of a scale meet another writer's."""

    def __init__(self, cluster: Cluster, conflicts: int) -> None:
        self.left = conflicts
        self._cluster = cluster

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._cluster, verb)

    async def scale(self, *arguments: Any, **keywords: Any) -> Any:
        """As the cluster's, later."""
        if self.left:
            self.left -= 1
            raise Conflict("the object has been modified")
        return await self._cluster.scale(*arguments, **keywords)


@pytest.mark.fault("A9")
async def test_a_scale_that_meets_another_write_is_tried_again(cluster: Cluster, plain: Plain) -> None:
    contended: Any = Contended(cluster, 3)
    async with own_autoscaler(contended, plain.namespace):
        await plain.create(NAME, {"min-scale": "2", "initial-scale": "1"}, autoscaler_class=CLASS)
        await plain.scaled(2)
    assert contended.left == 0
