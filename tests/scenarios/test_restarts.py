"""Restarts: new replicas of the same versions, one after another, without a failed request."""

from __future__ import annotations

from collections.abc import Set

import pytest

from clusters.base.objects import MODEL, POD, Object, is_deleting, name_of
from clusters.net.endpoints import is_ready
from serving.types.annotations import ANNOTATION_RESTART, LABEL_MODEL
from tests.scenarios.world import MANAGER, World, traffic_of


async def replicas(world: World, name: str) -> list[Object]:
    """Return the Pods of a Model that are not being deleted."""
    found = await world.cluster.list(POD, world.namespace, f"{LABEL_MODEL}={name}")
    return [pod for pod in found.items if not is_deleting(pod)]


async def restart(world: World, name: str) -> set[str]:
    """Restart the Model's replicas as `knodel restart` does, and return the names of the old ones."""
    old = {name_of(pod) for pod in await replicas(world, name)}
    patch = {"metadata": {"annotations": {ANNOTATION_RESTART: ",".join(old)}}}
    await world.cluster.patch(MODEL, name, patch, world.namespace, manager=MANAGER)
    return old


async def replaced(world: World, name: str, old: Set[str], number: int) -> None:
    """Return when none of the old replicas is left, and `number` new ones are ready."""

    async def done() -> bool:
        ready = {name_of(pod): is_ready(pod) for pod in await replicas(world, name)}
        assert not old & set(ready) and list(ready.values()) == [True] * number, f"{ready} after {old}"
        return True

    await world.eventually(done, 60)


@pytest.mark.parametrize("number", [1, 2])
async def test_every_replica_is_replaced_and_no_request_fails(world: World, number: int) -> None:
    name = f"renewed-{number}"
    before = await world.deploy(name, storageUri=world.artifacts("double"), minReplicas=number, maxReplicas=number)

    async with world.under_load(name) as load:
        await replaced(world, name, await restart(world, name), number)

    assert load.failures == []
    after = await world.ready(name)
    assert [name_of(one) for one in await world.revisions(name)] == [f"{name}-00001"]
    for field in ("traffic", "history", "latestReadyRevision"):
        assert after["status"][field] == before["status"][field]


async def test_a_pinned_split_and_its_versions_stay(world: World) -> None:
    name = "renewed-split"
    await world.deploy(name, storageUri=world.artifacts("double"), minReplicas=1)
    await world.deploy(name, storageUri=world.artifacts("triple"))
    split = [{"revision": f"{name}-0000{number}", "percent": percent} for number, percent in ((1, 60), (2, 40))]
    await world.deploy(name, traffic=split)
    await world.carries(name, {f"{name}-00001": 60, f"{name}-00002": 40})

    async with world.under_load(name) as load:
        await replaced(world, name, await restart(world, name), 2)

    assert load.failures == []
    assert set(load.answers) == {f"{name}-00001", f"{name}-00002"}
    assert traffic_of(await world.ready(name)) == {f"{name}-00001": 60, f"{name}-00002": 40}


async def test_a_rollout_goes_on_while_both_versions_are_restarted(world: World) -> None:
    name, rule = "renewed-rollout", {"steps": [50, 100], "stepDuration": "4s", "onInsufficientTraffic": "promote"}
    await world.deploy(name, storageUri=world.artifacts("double"), minReplicas=1, rollout=rule)
    await world.deploy(name, storageUri=world.artifacts("double"), version="2", wait=False)
    await world.until(name, lambda found: traffic_of(found) == {f"{name}-00001": 50, f"{name}-00002": 50})

    async with world.under_load(name) as load:
        old = await restart(world, name)
        promoted = await world.until(name, lambda found: found["status"]["rollout"]["phase"] == "Promoted", within=60)
        await world.carries(name, {f"{name}-00002": 100})

    assert load.failures == []
    assert promoted["status"]["rollout"]["candidate"] == f"{name}-00002"
    assert len(old) >= 2
