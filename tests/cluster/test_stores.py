"""A model on a volume claim, which Knative lets be mounted and the kubelet mounts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import Kind, Object
from tests.cluster.place import MANAGER, Place
from tests.support import models

pytestmark = pytest.mark.timeout(300)

VOLUME = Kind("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)
CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
CLAIMED = "models"
SIZE = {"storage": "1Mi"}


@pytest.fixture
async def claim(cluster: Cluster, namespace: str, tmp_path: Path) -> AsyncIterator[str]:
    """A claim in the test's namespace with the model `double`: a folder of the node, which is this machine."""
    folder = tmp_path / "volume"
    models.write(folder, "double")
    folder.chmod(0o755)  # the server is nobody there
    shared: Object = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    reference = {"namespace": namespace, "name": CLAIMED}
    volume = {**shared, "capacity": SIZE, "hostPath": {"path": str(folder)}, "claimRef": reference}
    wanted = {**shared, "volumeName": namespace, "resources": {"requests": SIZE}}
    await cluster.create(VOLUME, {"metadata": {"name": namespace}, "spec": volume}, manager=MANAGER)
    await cluster.create(
        CLAIM, {"metadata": {"name": CLAIMED, "namespace": namespace}, "spec": wanted}, manager=MANAGER
    )
    yield CLAIMED
    with suppress(NotFound):
        await cluster.delete(VOLUME, namespace)


async def test_a_model_on_a_volume_claim_answers(here: Place, claim: str) -> None:
    await here.deploy("claimed", storageUri=f"pvc://{claim}/double.onnx", minReplicas=1)

    answer = await here.world.ask("claimed", namespace=here.namespace, value=21.0)

    assert (answer.status, answer.body["outputs"][0]["data"]) == (200, [42.0])
