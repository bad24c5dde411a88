"""Off the cluster and on it again by the command; on the testbed only, and after all other tests."""

from __future__ import annotations

from functools import partial

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import MODEL, NAMESPACE, SERVICE
from serving.install.kinds import CRD
from serving.types.annotations import LABEL_MODEL
from serving.types.settings.settings import Settings
from tests.cluster.place import MANAGER, SMALL
from tests.cluster.test_command import Shell
from tests.scenarios.world import model
from tests.support.artifacts import ArtifactServer
from tests.support.kubernetes import KubeTarget
from tests.support.wait import eventually

REFUSED = 1  # exit code
PATIENCE = 180.0  # s; the Models of the tests before go with their namespaces, whose Pods drain for up to 45 s


async def test_knodel_leaves_only_without_models_leaves_nothing_and_comes_again(
    cluster: Cluster, target: KubeTarget, installed: Settings, namespace: str, artifacts: ArtifactServer
) -> None:
    if target.audit_log is None:
        pytest.skip("only the testbed's Knodel may be taken off")
    knodel = Shell(target, namespace)
    await eventually(partial(_no_models, cluster), PATIENCE)
    await cluster.create(MODEL, model("last", namespace, storageUri=artifacts.uri("double"), **SMALL), manager=MANAGER)
    knodel("wait", "last")

    refused = knodel("uninstall", code=REFUSED)
    knodel("uninstall", "--delete-models")

    assert "last" in refused.err
    assert "--delete-models" in refused.err
    for kind, name in ((CRD, MODEL.resource), (NAMESPACE, "knodel-system")):
        with pytest.raises(NotFound):
            await cluster.get(kind, name)
    assert (await cluster.list(SERVICE, None, LABEL_MODEL)).items == []
    knodel("install", "--overlay", "testbed", "--configure-knative")
    assert knodel("list").out.count("\n") <= 1


async def _no_models(cluster: Cluster) -> bool:
    return not (await cluster.list(MODEL)).items
