"""Fault A9: scaling a Deployment that other clients write, delete and recreate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from autoscaler.types import Policy
from clusters.base.errors import Conflict, NotFound
from clusters.base.objects import DEPLOYMENT, REVISION, Object, owner_reference, uid_of
from clusters.embedded.cluster import EmbeddedCluster
from tests.autoscaler.test_controller import serving
from tests.autoscaler.world import DEPLOYMENT_NAME, World, running
from tests.support.clock import SteppedClock
from tests.support.wait import eventually

TEST = "test"
Refusal = Callable[[], Awaitable[None]]


class Meddled:
    """A cluster that awaits `before` before each scale, which may raise."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.before: Refusal | None = None
        self.scaled: list[tuple[str, int]] = []  # uid of what was scaled, replicas

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._cluster, verb)

    async def scale(self, *arguments: Any, **keywords: Any) -> Any:
        if self.before is not None:
            await self.before()
        scale = await self._cluster.scale(*arguments, **keywords)
        self.scaled.append((uid_of(scale), int(scale["spec"]["replicas"])))
        return scale


async def make_again(cluster: EmbeddedCluster) -> Object:
    """Delete the Deployment, and create another one with its name."""
    await cluster.delete(DEPLOYMENT, DEPLOYMENT_NAME, "default")

    async def gone() -> bool:
        try:
            await cluster.get(DEPLOYMENT, DEPLOYMENT_NAME, "default")
        except NotFound:
            return True
        return False

    await eventually(gone)
    metadata = {"name": "theirs", "namespace": "default"}
    theirs = await cluster.create(REVISION, {"metadata": metadata, "spec": {}}, manager=TEST)
    owned = {"name": DEPLOYMENT_NAME, "namespace": "default", "ownerReferences": [owner_reference(REVISION, theirs)]}
    return await cluster.create(DEPLOYMENT, {"metadata": owned, "spec": {"replicas": 1}}, manager=TEST)


@pytest.mark.fault("A9")
async def test_a_deployment_that_was_made_again_in_this_moment_is_not_scaled(cluster: EmbeddedCluster) -> None:
    meddled: Any = Meddled(cluster)
    async with running(World(meddled, SteppedClock())) as world:
        await serving(world, Policy(max_replicas=8, scale_target=1, target_utilization=1))
        made: list[Object] = []

        async def swap() -> None:
            if not made:
                made.append(await make_again(cluster))

        meddled.before = swap
        world.activator.holds(queued=6)
        await eventually(lambda: bool(made))
        await world.pass_time(10.0)
        assert uid_of(made[0]) not in {uid for uid, _ in meddled.scaled}
        assert (await world.get(DEPLOYMENT, DEPLOYMENT_NAME))["spec"]["replicas"] == 1
        assert world.autoscaler.controller.passes > 0


@pytest.mark.fault("A9")
async def test_a_storm_of_conflicts_delays_a_scale_and_ends_nothing(cluster: EmbeddedCluster) -> None:
    meddled: Any = Meddled(cluster)
    async with running(World(meddled, SteppedClock())) as world:
        await serving(world, Policy(max_replicas=8, scale_target=1, target_utilization=1))
        left = 5

        async def refuse() -> None:
            nonlocal left
            left -= 1
            if left >= 0:
                raise Conflict(f"deployments {DEPLOYMENT_NAME!r}: it was changed meanwhile: read it again")

        meddled.before = refuse
        await world.set_policy(Policy(min_replicas=4, max_replicas=8).to_json())
        await world.until(world.replicas_asked, 4)
        assert left < 0
        uid = uid_of(await world.get(DEPLOYMENT, DEPLOYMENT_NAME))
        await eventually(lambda: set(meddled.scaled) == {(uid, 4)})
