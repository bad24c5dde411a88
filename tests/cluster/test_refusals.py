"""What the serving reconciler says when Knative, another Model or a flag of Knative's stands in the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.base.errors import NotFound
from clusters.base.objects import CONFIG_MAP, MODEL, SERVICE, is_true
from serving.makers.knative_flags import FLAGS, TAG_HEADER
from serving.reconciler.flags import ConfigMapFlags
from tests.cluster.place import MANAGER, Place, place
from tests.support.artifacts import ArtifactServer
from tests.support.kubernetes import KubeTarget
from tests.support.wait import eventually

pytestmark = pytest.mark.timeout(300)

GONE_WITHIN = 90.0  # s; queue-proxy drains for 30-45 s


@pytest.mark.fault("K12")
async def test_a_refusal_of_knatives_webhook_stands_on_the_model_and_the_old_version_serves_on(
    here: Place, cluster: Cluster, target: KubeTarget, artifacts: ArtifactServer, tmp_path: Path
) -> None:
    await here.deploy("refused", minReplicas=1)
    before = await here.get(SERVICE, "refused")
    async with place(cluster, target, here.namespace, artifacts, tmp_path, image="Not An Image") as there:
        message = await there.condition("refused", "False", "Invalid")

        assert "spec.template.spec.containers[0].image" in message
        assert (await there.world.ask("refused", namespace=there.namespace)).status == 200
        assert (await there.get(SERVICE, "refused"))["spec"] == before["spec"]


async def test_the_later_model_of_two_that_collide_says_so_and_gets_nothing(here: Place) -> None:
    await here.create("first", variants=[{"name": "a", "percent": 100}])
    await here.condition("first", "True", "")
    await here.create("first-a")

    message = await here.condition("first-a", "False", "Collision")

    assert "belongs to model first" in message
    with pytest.raises(NotFound):
        await here.get(SERVICE, "first-a")
    await here.cluster.delete(MODEL, "first", here.namespace)

    async def freed() -> bool:
        found = await here.get(MODEL, "first-a")
        return is_true(found, "ObjectsApplied")

    await eventually(freed, GONE_WITHIN)


async def test_knatives_flags_are_read_where_they_stand(here: Place) -> None:
    flags = ConfigMapFlags(here.cluster, SystemClock())
    assert await flags.missing(FLAGS) == ()
    off = {
        "metadata": {"name": TAG_HEADER.configmap, "namespace": here.namespace},
        "data": {TAG_HEADER.key: "disabled"},
    }
    await here.cluster.create(CONFIG_MAP, off, manager=MANAGER)

    [missing] = await flags.missing([replace(TAG_HEADER, namespace=here.namespace)])

    assert missing.key == TAG_HEADER.key
