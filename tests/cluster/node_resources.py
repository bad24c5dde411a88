"""A resource of the tests' own in a node's status. The scheduler counts it as it counts GPUs."""

from __future__ import annotations

from clusters.base.api import Cluster
from clusters.base.objects import NODE
from tests.cluster.place import MANAGER
from tests.scenarios.world import World


async def set_node_resource(cluster: Cluster, world: World, node: str, resource: str, units: int | None) -> None:
    """Give the node so many units, and wait until it has them; None takes the resource off it."""
    amount = None if units is None else str(units)
    told = {"status": {"capacity": {resource: amount}, "allocatable": {resource: amount}}}
    await cluster.patch(NODE, node, told, manager=MANAGER, subresource="status")

    async def in_force() -> bool:
        status = (await cluster.get(NODE, node))["status"]
        return {status[part].get(resource) for part in ("capacity", "allocatable")} == {amount}

    await world.eventually(in_force)
