"""Seeds of WarmPools on real Knative: a Deployment without replicas, of which a member fits a Model of equal fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autoscaler.warmpool.classes import pool_class
from autoscaler.warmpool.marks import LABEL_SEED
from clusters.errors import Invalid
from clusters.objects import (
    CONFIGURATION,
    DEPLOYMENT,
    MODEL,
    REVISION,
    WARM_POOL,
    Object,
    controller_of,
    name_of,
)
from tests.cluster.place import MANAGER, SMALL, Place
from tests.scenarios.world import model
from tests.serving.pools import pool_object
from tests.support.wait import eventually

pytestmark = pytest.mark.timeout(300)

SEED = "knodel-pool-small"
WITHIN = 90.0  # s for a step


async def make(here: Place, **spec: Any) -> Object:
    """The WarmPool `small`, without members."""
    wanted = pool_object(**{"size": 0, "template": SMALL, **spec})
    wanted["metadata"]["namespace"] = here.namespace
    return await here.cluster.create(WARM_POOL, wanted, manager=MANAGER)


async def seed_is(here: Place, check: Callable[[Object], bool]) -> None:
    """Wait for `status.seed`."""

    async def holds() -> bool:
        seed = ((await here.get(WARM_POOL, "small")).get("status") or {}).get("seed") or {}
        assert check(seed), seed
        return True

    await eventually(holds, WITHIN)


async def test_a_seed_is_ready_without_a_replica_and_of_the_class_of_a_model_with_equal_fields(here: Place) -> None:
    await make(here)
    await seed_is(here, lambda seed: seed == {"ready": True, "message": ""})
    await here.deploy("magika", minReplicas=1)

    seed = await here.get(DEPLOYMENT, f"{SEED}-00001-deployment")
    replica = await here.get(DEPLOYMENT, "magika-00001-deployment")

    assert seed["spec"]["replicas"] == 0
    assert seed["spec"]["template"]["metadata"]["labels"][LABEL_SEED] == "small"
    assert pool_class(seed) == pool_class(replica)


async def test_another_template_makes_a_revision_and_the_end_of_the_pool_takes_all_along(here: Place) -> None:
    await make(here)
    await seed_is(here, lambda seed: seed.get("ready") is True)
    patch = {"spec": {"size": 0, "template": {"timeout": "90s"}}}
    await here.cluster.patch(WARM_POOL, "small", patch, here.namespace, manager=MANAGER)

    async def second() -> bool:
        found = await here.cluster.list(DEPLOYMENT, here.namespace, f"{LABEL_SEED}=small")
        return {name_of(one) for one in found.items} == {f"{SEED}-00001-deployment", f"{SEED}-00002-deployment"}

    await eventually(second, WITHIN)
    await here.cluster.delete(WARM_POOL, "small", here.namespace)

    async def gone() -> bool:
        kinds = (CONFIGURATION, REVISION, DEPLOYMENT)
        return not any([(await here.cluster.list(kind, here.namespace)).items for kind in kinds])

    await eventually(gone, WITHIN)


async def test_a_configuration_of_somebody_else_is_told_and_not_written_over(here: Place) -> None:
    template = {"spec": {"containers": [{"image": "dev.local/theirs"}]}}
    metadata = {"name": SEED, "namespace": here.namespace}
    theirs = {"apiVersion": CONFIGURATION.api_version, "kind": "Configuration", "metadata": metadata}
    await here.cluster.create(CONFIGURATION, {**theirs, "spec": {"template": template}}, manager=MANAGER)
    await make(here)

    await seed_is(here, lambda seed: "none of this pool's" in seed.get("message", ""))

    assert controller_of(await here.get(CONFIGURATION, SEED)) is None


async def test_a_model_with_the_name_of_a_seed_is_refused(here: Place) -> None:
    with pytest.raises(Invalid, match="such names belong to the seeds of WarmPools"):
        await here.cluster.create(MODEL, model(SEED, here.namespace, storageUri="https://x/y"), manager=MANAGER)
