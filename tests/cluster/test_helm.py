"""The Helm chart on a real cluster: it takes an installation over, is upgraded and downgraded under traffic, and goes.

On the testbed only, whose images it uses. The release N-1 is a copy of the chart with an older definition, another
Pod template, and without the router.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.base.api import Cluster
from clusters.base.distribution import VERSION
from clusters.base.errors import NotFound
from clusters.base.objects import DEPLOYMENT, MODEL, REVISION, SECRET, key_of, name_of
from clusters.runtime.manager.options import SYSTEM_NAMESPACE
from serving.install import pool_key
from serving.install.kinds import CRD
from serving.install.waiting import not_available
from serving.types.annotations import LABEL_MODEL
from serving.types.settings.settings import Settings
from tests.cluster.helm import Helm, helm_on_the_testbed
from tests.cluster.test_kills import MORE, NAME, SMALL, answers, ready
from tests.manifests.chart.generate import CHART, make_chart
from tests.scenarios.world import infer_body, model
from tests.support.artifacts import ArtifactServer
from tests.support.kubernetes import KubeTarget
from tests.support.prober import probing
from tests.support.tools import tool
from tests.support.wait import eventually

MANAGER = "tests"
OLD_VERSION = "0.0.1"
COLUMN, OLD_COLUMN = "name: Ready\n", "name: Serves\n"
"""A column of the definition of Models, and its name in the release before."""
PATIENCE = 240.0
"""s until all Deployments run as applied."""


def older_chart(folder: Path) -> Path:
    """Write a chart of the release before into `folder`."""
    for path, text in make_chart().items():
        target = folder / path.relative_to(CHART)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "Chart.yaml":
            text = text.replace(f"version: {VERSION}", f"version: {OLD_VERSION}")
        if path.name == "crds.yaml":
            assert COLUMN in text
            text = text.replace(COLUMN, OLD_COLUMN)
        target.write_text(text)
    return folder


@pytest.fixture
async def helm(
    cluster: Cluster, target: KubeTarget, installed: Settings, namespace: str, tmp_path: Path
) -> AsyncIterator[Helm]:
    """Provide Helm; afterwards the testbed has its own installation again."""
    if target.audit_log is None:
        pytest.skip("only the testbed's Knodel may be replaced")
    with helm_on_the_testbed(tool("helm"), target, tmp_path) as made:
        yield made


async def columns(cluster: Cluster) -> set[str]:
    """Return the names of the columns of the definition of Models."""
    [version] = (await cluster.get(CRD, MODEL.resource))["spec"]["versions"]
    return {column["name"] for column in version["additionalPrinterColumns"]}


async def all_run(cluster: Cluster) -> bool:
    """Return whether every Deployment of the installation runs as applied."""
    found = (await cluster.list(DEPLOYMENT, SYSTEM_NAMESPACE)).items
    return bool(found) and not any([await not_available(cluster, key_of(one)) for one in found])


async def test_a_release_is_upgraded_and_downgraded_under_traffic_and_leaves_the_models(
    cluster: Cluster, helm: Helm, installed: Settings, namespace: str, artifacts: ArtifactServer, tmp_path: Path
) -> None:
    old = older_chart(tmp_path / "old")
    older = ("--set-json", 'env=[{"name": "KNODEL_TEST", "value": "older"}]', "--set", "router.enabled=false")
    key = await cluster.get(SECRET, pool_key.NAME, SYSTEM_NAMESPACE)
    await asyncio.to_thread(helm.apply, "install", CHART, "--take-ownership")
    await asyncio.to_thread(helm.apply, "upgrade", old, *older)
    await cluster.create(MODEL, model(NAME, namespace, storageUri=artifacts.uri("double"), **SMALL), manager=MANAGER)
    await ready(cluster, namespace, 1)
    gateway = installed.gateway
    url = f"http://{gateway.address}:{gateway.port}/v2/models/{NAME}/infer"
    headers = {"Host": f"{NAME}.{namespace}.{gateway.domain}", "Content-Type": "application/json"}

    async with probing(url, headers, infer_body(1.0), rate=20.0) as probes:
        await answers(probes, MORE)
        await asyncio.to_thread(helm.apply, "upgrade", CHART)
        await eventually(lambda: all_run(cluster), PATIENCE)
        newer = await columns(cluster)
        await answers(probes, MORE)
        await asyncio.to_thread(helm.apply, "upgrade", old, *older)
        await eventually(lambda: all_run(cluster), PATIENCE)
        await answers(probes, MORE)
    deployments = {name_of(one) for one in (await cluster.list(DEPLOYMENT, SYSTEM_NAMESPACE)).items}
    revisions = (await cluster.list(REVISION, namespace, f"{LABEL_MODEL}={NAME}")).items

    assert probes.failures == []
    assert "Ready" in newer and "Serves" in await columns(cluster), "definitions follow the release"
    assert deployments == {"knodel-autoscaler", "knodel-controller", "knodel-eventing"}
    assert len(revisions) == 1, "an upgrade of the control plane makes no version of a Model"
    assert (await cluster.get(SECRET, pool_key.NAME, SYSTEM_NAMESPACE))["data"] == key["data"], (
        "pools keep their members"
    )

    helm("uninstall", "knodel", "--wait")
    with pytest.raises(NotFound):
        await cluster.get(DEPLOYMENT, "knodel-controller", SYSTEM_NAMESPACE)
    assert (await cluster.get(MODEL, NAME, namespace))["status"]["conditions"]
    assert (await cluster.get(SECRET, pool_key.NAME, SYSTEM_NAMESPACE))["data"] == key["data"]
