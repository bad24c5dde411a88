"""Models in a namespace that takes restricted Pods only: what runs there is what was rendered, with Knative's parts."""

from __future__ import annotations

import pytest

from clusters.base.api import Cluster
from clusters.base.objects import NAMESPACE, POD
from tests.cluster.place import MANAGER, Place
from tests.security.pod_security import faults

pytestmark = pytest.mark.timeout(300)

ENFORCED = {"pod-security.kubernetes.io/enforce": "restricted"}
OURS = "container server:"


async def test_a_model_serves_where_only_restricted_pods_are_taken(cluster: Cluster, here: Place) -> None:
    await cluster.patch(NAMESPACE, here.namespace, {"metadata": {"labels": ENFORCED}}, manager=MANAGER)

    await here.deploy("strict", minReplicas=1)

    answer = await here.world.ask("strict", namespace=here.namespace, value=21.0)
    assert answer.status == 200
    for pod in await here.of_model(POD, "strict"):
        assert [one for one in faults(pod["spec"]) if one.startswith((OURS, "spec:", "volume"))] == []
        assert not [volume for volume in pod["spec"]["volumes"] if "projected" in volume], "a token of the API"
