"""Seeds of WarmPools by the installed Knodel: Deployments without replicas, of the class of Models of equal fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autoscaler.config import Records
from autoscaler.usage.meter import Meter, read_usage
from autoscaler.warmpool.claims.classes import pool_class
from autoscaler.warmpool.claims.marks import LABEL_POOL, LABEL_SEED
from clusters.base.api import Cluster
from clusters.base.errors import Invalid
from clusters.base.objects import (
    CONFIGURATION,
    DEPLOYMENT,
    MODEL,
    POD,
    REVISION,
    WARM_POOL,
    Object,
    controller_of,
    name_of,
)
from clusters.net.endpoints import is_ready
from serving.types.settings.settings import Settings
from tests.cluster.place import MANAGER, SMALL
from tests.scenarios.world import model
from tests.serving.pools import pool_object
from tests.support.artifacts import ArtifactServer
from tests.support.wait import eventually

SEED = "knodel-pool-small"
WITHIN = 120.0  # s for a step


class Pools:
    """The WarmPool `small`, without members, in a namespace of the test's own."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    async def make(self, **spec: Any) -> Object:
        """Create it."""
        wanted = pool_object(**{"size": 0, "template": SMALL, **spec})
        wanted["metadata"]["namespace"] = self.namespace
        return await self.cluster.create(WARM_POOL, wanted, manager=MANAGER)

    async def seed_is(self, check: Callable[[Object], bool]) -> None:
        """Wait for `status.seed`."""

        async def holds() -> bool:
            pool = await self.cluster.get(WARM_POOL, "small", self.namespace)
            seed = (pool.get("status") or {}).get("seed") or {}
            assert check(seed), seed
            return True

        await eventually(holds, WITHIN)

    async def members_are(self, number: int) -> None:
        """Wait until there are so many, all of them ready."""

        async def there() -> bool:
            pods = (await self.cluster.list(POD, self.namespace, f"{LABEL_POOL}=small")).items
            return len(pods) == number and all(map(is_ready, pods))

        await eventually(there, WITHIN)

    async def deployments(self, *expected: str) -> list[Object]:
        """Wait until these are there and no others."""

        async def there() -> list[Object]:
            found = list((await self.cluster.list(DEPLOYMENT, self.namespace)).items)
            assert sorted(map(name_of, found)) == sorted(f"{one}-deployment" for one in expected)
            return [*found, {}]  # an empty list would be "not yet"

        return (await eventually(there, WITHIN))[:-1]


@pytest.fixture
def pools(cluster: Cluster, installed: Settings, namespace: str) -> Pools:
    """A namespace in which the installed Knodel acts."""
    return Pools(cluster, namespace)


async def test_a_seed_is_ready_without_a_replica_and_of_the_class_of_a_model_with_equal_fields(
    pools: Pools, artifacts: ArtifactServer
) -> None:
    await pools.make()
    await pools.seed_is(lambda seed: seed == {"ready": True, "message": ""})
    wanted = model("magika", pools.namespace, storageUri=artifacts.uri("double"), **SMALL)
    await pools.cluster.create(MODEL, wanted, manager=MANAGER)

    found = {name_of(one): one for one in await pools.deployments("magika-00001", f"{SEED}-00001")}

    seed, replica = found[f"{SEED}-00001-deployment"], found["magika-00001-deployment"]
    assert seed["spec"]["replicas"] == 0
    assert seed["spec"]["template"]["metadata"]["labels"][LABEL_SEED] == "small"
    assert pool_class(seed["spec"]["template"]) == pool_class(replica["spec"]["template"])


async def test_another_template_makes_a_revision_and_the_end_of_the_pool_takes_all_along(pools: Pools) -> None:
    await pools.make()
    await pools.deployments(f"{SEED}-00001")
    patch = {"spec": {"template": {"timeout": "90s"}}}
    await pools.cluster.patch(WARM_POOL, "small", patch, pools.namespace, manager=MANAGER)
    await pools.deployments(f"{SEED}-00001", f"{SEED}-00002")

    await pools.cluster.delete(WARM_POOL, "small", pools.namespace)

    await pools.deployments()
    for kind in (CONFIGURATION, REVISION):
        assert (await pools.cluster.list(kind, pools.namespace)).items == []


async def test_members_above_a_smaller_size_go(pools: Pools) -> None:
    await pools.make(size=2)
    await pools.members_are(2)

    await pools.cluster.patch(WARM_POOL, "small", {"spec": {"size": 1}}, pools.namespace, manager=MANAGER)

    await pools.members_are(1)


async def test_what_its_members_hold_is_written_on_the_pool(pools: Pools) -> None:
    await pools.make(size=1)
    await pools.members_are(1)

    async def billed() -> list[Meter]:
        found = read_usage(await pools.cluster.get(WARM_POOL, "small", pools.namespace))
        return [meter for meter in found.meters if any(spent.idle > 0 for spent in meter.days.values())]

    [meter] = await eventually(billed, 2 * Records().usage_interval + WITHIN)

    assert meter.replica["memory"] > 0


async def test_a_configuration_of_somebody_else_is_told_and_not_written_over(pools: Pools) -> None:
    template = {"spec": {"containers": [{"image": "dev.local/theirs"}]}}
    metadata = {"name": SEED, "namespace": pools.namespace}
    theirs = {"apiVersion": CONFIGURATION.api_version, "kind": CONFIGURATION.kind, "metadata": metadata}
    await pools.cluster.create(CONFIGURATION, {**theirs, "spec": {"template": template}}, manager=MANAGER)
    await pools.make()

    await pools.seed_is(lambda seed: "does not belong to this pool" in seed.get("message", ""))

    assert controller_of(await pools.cluster.get(CONFIGURATION, SEED, pools.namespace)) is None


async def test_a_model_with_the_name_of_a_seed_is_refused(pools: Pools) -> None:
    wanted = model(SEED, pools.namespace, storageUri="https://models.example.org/m.onnx")
    with pytest.raises(Invalid, match="such names are reserved for the seeds of WarmPools"):
        await pools.cluster.create(MODEL, wanted, manager=MANAGER)
