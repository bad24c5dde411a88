"""Variants that come and go on a living Model; canary and rollback between the shapes; no request fails meanwhile."""

from __future__ import annotations

import pytest

from clusters.base.objects import MODEL, REVISION, ROUTE, SERVICE, Object, controller_of, is_true, name_of
from serving.reconciler.rollout.commands import promote, rollback
from tests.scenarios.world import MANAGER, SOON, World, reason_of, traffic_of

VARIANTS = [{"name": "a", "percent": 75}, {"name": "b", "percent": 25}]


def variants_of(name: str) -> dict[str, int]:
    """Revision → percent of the first version with `VARIANTS`."""
    return {f"{name}-a-00001": 75, f"{name}-b-00001": 25}


async def command(world: World, name: str, change: Object) -> Object:
    """Send what a command made of the Model; the Model once it is Ready so."""
    changed = await world.cluster.patch(MODEL, name, change, world.namespace, manager=MANAGER)
    return await world.ready(name, generation=int(changed["metadata"]["generation"]))


async def roll_back(world: World, name: str, to: str | None = None) -> Object:
    """`knodel rollback NAME [--to REVISION]`."""
    found = await world.cluster.get(MODEL, name, world.namespace)
    return await command(world, name, rollback(found, await world.revisions(name), to))


async def service_owns_the_route(world: World, name: str) -> None:
    """Return once Knative's Service has the Route and is Ready."""

    async def holds() -> bool:
        route = await world.cluster.get(ROUTE, name, world.namespace)
        services = {name_of(one): one for one in (await world.cluster.list(SERVICE, world.namespace)).items}
        owner = controller_of(route) or {}
        return owner.get("kind") == SERVICE.kind and name in services and is_true(services[name], "Ready")

    await world.eventually(holds, 20)


async def test_a_rollback_goes_back_to_variants_with_their_shares_and_promote_undoes_it(world: World) -> None:
    await world.deploy("wavering", storageUri=world.artifacts("double"), minReplicas=1, variants=VARIANTS)

    async with world.under_load("wavering") as load:
        await world.deploy("wavering", storageUri=world.artifacts("triple"), variants=None)
        single = await world.requests("wavering", 100)
        await service_owns_the_route(world, "wavering")
        back = await roll_back(world, "wavering")
        varied = await world.requests("wavering", 400)
        found = await world.cluster.get(MODEL, "wavering", world.namespace)
        promoted = await command(world, "wavering", promote(found))
        again = await world.requests("wavering", 100)
        await service_owns_the_route(world, "wavering")

    assert load.failures == single.failures == varied.failures == again.failures == []
    assert set(single.answers) == set(again.answers) == {"wavering-00001"}
    assert traffic_of(back) == variants_of("wavering")
    assert 0.15 < varied.answers["wavering-b-00001"] / varied.total < 0.35
    assert traffic_of(promoted) == {"wavering-00001": 100}


async def test_a_rollback_goes_back_to_before_the_variants(world: World) -> None:
    await world.deploy("returning", storageUri=world.artifacts("double"), minReplicas=1)

    async with world.under_load("returning") as load:
        await world.deploy("returning", storageUri=world.artifacts("triple"), variants=VARIANTS)
        varied = await world.requests("returning", 100)
        await roll_back(world, "returning")
        back = await world.requests("returning", 100)
        await roll_back(world, "returning")
        forth = await world.requests("returning", 100)

    assert load.failures == varied.failures == back.failures == forth.failures == []
    assert set(varied.answers) == set(forth.answers) == set(variants_of("returning"))
    assert set(back.answers) == {"returning-00001"}


async def test_variants_that_come_and_go_again_are_the_same_versions(world: World) -> None:
    await world.deploy("swinging", storageUri=world.artifacts("double"), minReplicas=1)

    async with world.under_load("swinging") as load:
        for _ in range(3):
            varied = await world.deploy("swinging", variants=VARIANTS)
            assert traffic_of(varied) == variants_of("swinging")
            single = await world.deploy("swinging", variants=None)
            assert traffic_of(single) == {"swinging-00001": 100}
    await service_owns_the_route(world, "swinging")

    assert load.failures == []
    revisions = await world.cluster.list(REVISION, world.namespace, "knodel.dev/model=swinging")
    assert {name_of(one) for one in revisions.items} == {"swinging-00001", *variants_of("swinging")}


async def test_a_canary_after_variants_is_ready_only_with_its_share_in_force(world: World) -> None:
    await world.deploy("tasting", storageUri=world.artifacts("double"), minReplicas=1, variants=VARIANTS)

    async with world.under_load("tasting") as load:
        split = await world.deploy(
            "tasting", storageUri=world.artifacts("triple"), variants=None, canaryTrafficPercent=20
        )
        measured = await world.requests("tasting", 600)
        promoted = await command(world, "tasting", promote(split))
        await service_owns_the_route(world, "tasting")
        split_again = await world.deploy("tasting", storageUri=world.artifacts("double"), canaryTrafficPercent=20)

    assert load.failures == measured.failures == []
    assert traffic_of(split) == {"tasting-00001": 20, "tasting-a-00001": 60, "tasting-b-00001": 20}
    assert 0.12 < measured.answers["tasting-00001"] / measured.total < 0.28
    assert traffic_of(promoted) == {"tasting-00001": 100}
    assert traffic_of(split_again) == {"tasting-00001": 80, "tasting-00002": 20}


@pytest.mark.fault("K12")
async def test_a_broken_version_without_variants_leaves_the_traffic_on_the_variants(world: World) -> None:
    await world.deploy("brittle", storageUri=world.artifacts("double"), minReplicas=1, variants=VARIANTS)

    async with world.under_load("brittle") as load:
        await world.deploy(
            "brittle", storageUri=world.artifacts("truncated"), variants=None, startupDeadline=SOON, wait=False
        )
        broken = await world.until("brittle", lambda m: "brittle-00001" in reason_of(m) and not is_true(m, "Ready"))
        after = await world.requests("brittle", 50)
        mended = await world.deploy("brittle", storageUri=world.artifacts("triple"), startupDeadline=None)

    assert load.failures == after.failures == []
    assert traffic_of(broken) == variants_of("brittle")
    assert set(after.answers) <= set(variants_of("brittle"))
    assert traffic_of(mended) == {"brittle-00002": 100}
