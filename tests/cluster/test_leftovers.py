"""What is under a Model and what nothing leads to any more goes, while the Model serves on."""

from __future__ import annotations

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import CONFIGURATION, MODEL, is_true, owner_reference
from serving.types.settings.settings import Settings
from tests.cluster.place import MANAGER, SMALL
from tests.golden.scene import make_template
from tests.scenarios.world import model
from tests.support.artifacts import ArtifactServer
from tests.support.kubernetes import KNATIVE_CLASS
from tests.support.wait import eventually

NAME, LEFT = "tidy", "tidy-left"
WITHIN = 120.0  # s for a step


async def test_a_configuration_that_no_traffic_and_no_history_leads_to_is_deleted(
    cluster: Cluster, installed: Settings, namespace: str, artifacts: ArtifactServer
) -> None:
    uri = artifacts.uri("double")
    made = await cluster.create(MODEL, model(NAME, namespace, storageUri=uri, **SMALL), manager=MANAGER)

    async def ready() -> bool:
        return is_true(await cluster.get(MODEL, NAME, namespace), "Ready")

    async def gone() -> bool:
        try:
            await cluster.get(CONFIGURATION, LEFT, namespace)
        except NotFound:
            return True
        return False

    await eventually(ready, WITHIN)
    template = make_template(LEFT, uri, installed.server, KNATIVE_CLASS, {"min_scale": "0", "max_scale": "1"})
    left = {
        "apiVersion": CONFIGURATION.api_version,
        "kind": CONFIGURATION.kind,
        "metadata": {"name": LEFT, "namespace": namespace, "ownerReferences": [owner_reference(MODEL, made)]},
        "spec": {"template": template},
    }
    await cluster.create(CONFIGURATION, left, manager=MANAGER)

    await eventually(gone, WITHIN)
    assert await ready()
