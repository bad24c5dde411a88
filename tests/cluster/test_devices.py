"""Replicas that ask for a device of which the node has too few: fault A11, with a made-up one.

An extended resource is a number in the node's status (Kubernetes: "Advertise Extended Resources for a Node"), which the
real scheduler counts as it counts GPUs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from clusters.base.api import Cluster
from clusters.base.objects import POD, POD_AUTOSCALER, Kind, name_of, uid_of
from tests.cluster.calling import Caller
from tests.cluster.plain import FIRST, NAME, Plain
from tests.support.kubernetes import KubeTarget
from tests.support.wait import eventually

pytestmark = pytest.mark.usefixtures("autoscaler")

MANAGER = "tests"
NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
RESOURCE = "knodel.example/device"
REPLICAS = 3  # one that serves, and a batch of two
WATCHED = 20.0  # s in which a loop of creations would show
ASKS_FOR_ONE = {"resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {RESOURCE: "1"}}}


@dataclass(frozen=True)
class Devices:
    """The made-up devices of the testbed's node."""

    cluster: Cluster
    node: str

    async def are(self, number: int | None) -> None:
        """So many are there, None: no such resource; returns once the scheduler counts on them."""
        value = None if number is None else str(number)
        status = {"capacity": {RESOURCE: value}, "allocatable": {RESOURCE: value}}
        await self.cluster.patch(NODE, self.node, {"status": status}, manager=MANAGER, subresource="status")

        async def counted() -> bool:
            found = await self.cluster.get(NODE, self.node)
            return bool(found["status"]["allocatable"].get(RESOURCE, "0") == (value or "0"))

        await eventually(counted, 60.0)


@pytest.fixture
async def devices(cluster: Cluster, target: KubeTarget) -> AsyncIterator[Devices]:
    """None to begin with. Only the testbed's node may be told tales."""
    if target.audit_log is None:
        pytest.skip("only the testbed's node may be changed")
    node = name_of(next(iter((await cluster.list(NODE)).items)))
    made = Devices(cluster, node)
    await made.are(0)
    yield made
    await made.are(None)


def born(plain: Plain) -> set[str]:
    """The uids of all Pods of the Service that were ever seen."""
    return {uid_of(one.after) for one in plain.moments if one.kind == POD and one.after is not None}


def placed(plain: Plain) -> int:
    """Pods that a node has taken."""
    return sum(1 for pod in plain.pods() if pod["spec"].get("nodeName"))


@pytest.mark.fault("A11")
async def test_what_no_node_has_room_for_waits_says_why_and_is_not_made_again(
    plain: Plain, caller: Caller, devices: Devices
) -> None:
    scaling = {"target": "1", "max-scale": str(REPLICAS), "window": "6s", "target-utilization-percentage": "100"}
    await plain.create(NAME, scaling, container=ASKS_FOR_ONE, deadline="300s")
    await plain.tells(POD_AUTOSCALER, FIRST, "Active", f"Insufficient {RESOURCE}")
    assert (len(plain.pods()), placed(plain), len(born(plain))) == (1, 0, 1)

    await devices.are(1)
    await plain.ready()
    async with caller.busy(8, ms=500) as answers:
        await plain.scaled(REPLICAS)
        await plain.until(lambda: len(plain.pods()) == REPLICAS)
        began = len(plain.moments)
        await caller.rounds(answers, round(WATCHED / 0.5))  # one replica answers every half second
        assert placed(plain) == 1
        assert len(plain.pods()) == plain.most_asked() == REPLICAS, "one batch waits, and no more"
        assert len(born(plain)) == REPLICAS, f"made again and again: {len(plain.moments) - began} changes"
        await devices.are(REPLICAS)
        await plain.running(REPLICAS)
    assert answers.failures == []
