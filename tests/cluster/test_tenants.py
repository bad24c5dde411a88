"""Namespaces that share GPUs by weight and guarantee: elastic Jobs on nodes that KWOK plays, on a real scheduler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from autoscaler.config import AutoscalerSettings, Zero
from autoscaler.gpu.claims import AllocationSettings, Tenant
from autoscaler.gpu.elastic import JOB
from autoscaler.settings_file import FileSettings
from clusters.base.api import Cluster
from clusters.base.objects import NAMESPACE, POD, labels_of
from clusters.net.endpoints import is_ready
from tests.cluster import kwok
from tests.cluster.jobs import make_job
from tests.cluster.own_autoscaler import UNBILLED, own_autoscaler
from tests.cluster.place import MANAGER
from tests.support.kubernetes import KubeTarget
from tests.support.wait import eventually

pytestmark = pytest.mark.skipif(not kwok.is_built(), reason="needs `python -m tests.testbed build --kwok`")

GPU = "tenants.knodel.test/gpu"
NODES = (8, 8)
TOTAL = sum(NODES)
GUARANTEE = 4
WITHIN = 120.0
BACK = (kwok.TRAINER_END + kwok.START[1]) / 1000 + 4.0
"""s until a guarantee is back: a trainer's end, a Pod's start, a tick and a write of Job and autoscaler."""


class Tenants:
    """Two namespaces, `one` and `other`, with one elastic Job each."""

    def __init__(self, cluster: Cluster, one: str, other: str) -> None:
        self.cluster = cluster
        self.one = one
        self.other = other

    async def submit(self, namespace: str, least: int, most: int) -> None:
        """Create the namespace's Job at its minimum, with one GPU for each worker."""
        made = make_job("train", namespace, least, {"cpu": "10m", GPU: "1"}, elastic=(least, most))
        await self.cluster.create(JOB, made, manager=MANAGER)

    async def workers(self, namespace: str) -> int:
        """The number of running workers."""
        pods = (await self.cluster.list(POD, namespace)).items
        return sum(labels_of(pod).get("job-name") == "train" and is_ready(pod) for pod in pods)

    async def workers_are(self, one: int, other: int) -> None:
        """Return once so many workers run in the two namespaces."""

        async def holds() -> bool:
            found = [await self.workers(namespace) for namespace in (self.one, self.other)]
            assert found == [one, other], found
            return True

        await eventually(holds, WITHIN)


@pytest.fixture
async def tenants(
    request: pytest.FixtureRequest, cluster: Cluster, target: KubeTarget, namespace: str, tmp_path: Path
) -> AsyncIterator[Tenants]:
    """The namespaces on nodes with GPUs, and their autoscaler: `other` has three times the weight of `one`.

    The parameter is the guarantee of `one`.
    """
    other = f"{namespace}-other"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}}
    await cluster.create(NAMESPACE, made, manager=MANAGER)
    shares = AllocationSettings({
        namespace: Tenant(1.0, {GPU: request.param}), other: Tenant(3.0)
    }, settle=2.0, min_runtime=5.0, start_pause=2.0)  # fmt: skip
    settings = FileSettings(AutoscalerSettings(zero=Zero(grace=2.0), records=UNBILLED), gpus=shares)
    found = Tenants(cluster, namespace, other)
    async with (
        kwok.fake_nodes(cluster, target.kubeconfig, tmp_path, GPU, NODES),
        own_autoscaler(cluster, namespace, settings),
    ):
        try:
            yield found
        finally:
            for one in (namespace, other):
                for job in (await cluster.list(JOB, one)).items:
                    await cluster.delete(JOB, job["metadata"]["name"], one)
            await cluster.delete(NAMESPACE, other)

            async def gone() -> bool:
                return not [pod for one in (namespace, other) for pod in (await cluster.list(POD, one)).items]

            await eventually(gone, WITHIN)


@pytest.mark.parametrize("tenants", [0], indirect=True)
async def test_jobs_grow_by_the_weights_of_their_namespaces_to_one_worker(tenants: Tenants) -> None:
    await asyncio.gather(tenants.submit(tenants.one, 1, TOTAL), tenants.submit(tenants.other, 1, TOTAL))
    await tenants.workers_are(TOTAL // 4, TOTAL - TOTAL // 4)


@pytest.mark.parametrize("tenants", [GUARANTEE], indirect=True)
async def test_a_guarantee_is_lent_and_taken_back_within_a_start(tenants: Tenants) -> None:
    await tenants.submit(tenants.other, 1, TOTAL)
    await tenants.workers_are(0, TOTAL)
    began = time.monotonic()
    await tenants.submit(tenants.one, GUARANTEE, GUARANTEE)
    await tenants.workers_are(GUARANTEE, TOTAL - GUARANTEE)
    assert time.monotonic() - began <= BACK
