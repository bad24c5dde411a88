"""Volcano as the scheduler of Pods with GPUs: warm claims, groups of workers, and gangs, with the real scheduler.

The node's status has a resource of the tests' own in place of GPUs. Gangs run on nodes that KWOK plays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.gpu.elastic import JOB
from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import NODE, POD, Kind, Object, is_deleting, name_of, uid_of
from clusters.base.pod_queues import VOLCANO, VOLCANO_QUEUE
from clusters.base.quantities import parse_quantity
from clusters.net.endpoints import is_ready
from serving.groups.pods import POD_GROUP, VOLCANO_GROUP
from serving.types.workers import Gang
from tests.cluster import kwok
from tests.cluster.acting import settings_of
from tests.cluster.jobs import make_job
from tests.cluster.node_resources import set_node_resource
from tests.cluster.place import MANAGER, SMALL, Place, place
from tests.cluster.test_groups import LEADER, Group
from tests.scenarios.test_scaling import at_zero
from tests.scenarios.test_warm_starts import last_start, members
from tests.support.artifacts import ArtifactServer
from tests.support.kubernetes import KubeTarget
from tests.support.wait import eventually
from tests.testbed.volcano import QUEUE

QUEUES = Kind("scheduling.volcano.sh", "v1beta1", "Queue", "queues", namespaced=False)
GPU = "volcano.knodel.test/gpu"
GPUS = 16
ROUNDS, MODELS = 5, 4
"""Claims: each Model starts once in a round."""
SLOT = "knodel.test/gang-slot"
SLOTS = (7, 7)
JOBS, PODS = 5, 6
"""Volcano's case of KubeCon 2019: jobs of 2 parameter servers and 4 workers, more than fit at once."""
RUN = 20_000
"""ms that a gang runs once it is complete."""
WITHIN = 180.0


@pytest.fixture
async def volcano(cluster: Cluster) -> None:
    """Volcano on the cluster, else the test is skipped."""
    try:
        await cluster.get(QUEUES, QUEUE)
    except NotFound:
        pytest.skip("needs Volcano: `python -m tests.testbed up --volcano`")


@pytest.fixture
async def queued(
    volcano: None, cluster: Cluster, target: KubeTarget, namespace: str, artifacts: ArtifactServer, tmp_path: Path
) -> AsyncIterator[Place]:
    """A namespace whose controllers give Pods with GPUs to Volcano, and a node with GPUs."""
    installed = await settings_of(cluster)
    server = replace(installed.server, gpu_scheduler=VOLCANO, gpu_queue=QUEUE)
    node = name_of((await cluster.list(NODE)).items[0])
    async with place(
        cluster, target, namespace, artifacts, tmp_path, settings=replace(installed, server=server)
    ) as here:
        await set_node_resource(cluster, here.world, node, GPU, GPUS)
        try:
            yield here
        finally:
            await here.world.sweep()
            await set_node_resource(cluster, here.world, node, GPU, None)


async def test_twenty_of_twenty_starts_from_zero_are_claims_and_the_queue_counts_them(queued: Place) -> None:
    world, names = queued.world, [f"model-{number}" for number in range(MODELS)]
    resources = {**SMALL["resources"], "gpu": 1, "gpuResource": GPU}
    await world.pool("small", MODELS, resources=resources)
    for name in names:
        await queued.deploy(name, resources=resources, scaleToZeroAfter="1s", maxReplicas=1)
    claimed: set[str] = set()
    for _ in range(ROUNDS):
        for name in names:
            await at_zero(world, f"{name}-00001")
        await world.pool_has("small", MODELS)
        free = {name_of(pod) for pod in await members(world, "small")}
        answers = await asyncio.gather(*(world.ask(name) for name in names))
        assert [answer.status for answer in answers] == [200] * MODELS
        for name in names:
            start = await _start_of(queued, name, free)
            assert start["kind"] == "warm"
            claimed.add(start["pod"])
    assert len(claimed) == ROUNDS * MODELS

    async def counted() -> bool:
        pods = [pod for pod in (await queued.cluster.list(POD, queued.namespace)).items if not is_deleting(pod)]
        assert {pod["spec"]["schedulerName"] for pod in pods} == {VOLCANO}
        assert {pod["metadata"]["annotations"][VOLCANO_QUEUE] for pod in pods} == {QUEUE}
        held = sum(_gpus(pod) for pod in pods if (pod.get("status") or {}).get("phase") == "Running")
        assert await _allocated(queued.cluster) == held > 0
        return True

    await eventually(counted, WITHIN)


async def _start_of(queued: Place, name: str, free: set[str]) -> Object:
    """Return the Model's last start, once it is that of one of these members."""
    found = await queued.world.until(name, lambda found: last_start(found).get("pod") in free, queued.namespace)
    return last_start(found)


async def _allocated(cluster: Cluster) -> int:
    """Return the GPUs that Volcano counts for the queue."""
    status = (await cluster.get(QUEUES, QUEUE)).get("status") or {}
    return int(parse_quantity(str((status.get("allocated") or {}).get(GPU, "0"))))


def _gpus(pod: Object) -> int:
    requests = ((one.get("resources") or {}).get("requests") or {} for one in pod["spec"]["containers"])
    return sum(int(one.get(GPU, 0)) for one in requests)


async def test_workers_are_a_gang_and_a_lost_one_is_replaced(queued: Place) -> None:
    group = Group(queued.cluster, queued.namespace)
    settings = await settings_of(queued.cluster)
    await group.start(settings.server.image, "tolerate", Gang(VOLCANO, QUEUE))
    workers = await group.workers()
    assert {pod["spec"]["schedulerName"] for pod in workers.values()} == {VOLCANO}
    [made] = (await queued.cluster.list(POD_GROUP, queued.namespace)).items
    assert (made["spec"]["minMember"], made["spec"]["queue"]) == (2, QUEUE)

    await group.end(workers["w2"])
    await group.is_complete(without=frozenset({uid_of(workers["w2"])}))

    await queued.cluster.delete(POD, LEADER, queued.namespace)

    async def gone() -> bool:
        return not (await queued.cluster.list(POD_GROUP, queued.namespace)).items

    await eventually(gone, WITHIN)  # an orphan would reserve its resources for ever


class Gangs:
    """Jobs whose Pods end only once all Pods of their job run, as a training does that waits for its workers."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    async def submit(self, number: int, *, gang: bool) -> None:
        """Create a job, with a PodGroup if it is a gang."""
        name = f"train-{number}"
        made = make_job(name, self.namespace, PODS, {SLOT: "1"})
        made["spec"]["completions"] = PODS
        if gang:
            metadata = {"name": name, "namespace": self.namespace}
            spec = {"minMember": PODS, "queue": QUEUE, "minResources": {SLOT: str(PODS)}}
            group = {"apiVersion": POD_GROUP.api_version, "kind": POD_GROUP.kind, "metadata": metadata, "spec": spec}
            await self.cluster.create(POD_GROUP, group, manager=MANAGER)
            template = made["spec"]["template"]
            template["metadata"] = {"annotations": {VOLCANO_GROUP: name, VOLCANO_QUEUE: QUEUE}}
            template["spec"]["schedulerName"] = VOLCANO
        await self.cluster.create(JOB, made, manager=MANAGER)

    async def play(self, seconds: float) -> int:
        """End complete gangs after their time; return the number of jobs that ended."""
        complete: dict[str, float] = {}
        ended: set[str] = set()
        loop = asyncio.get_running_loop()
        began = loop.time()
        while loop.time() - began < seconds and len(ended) < JOBS:
            pods = [pod for pod in (await self.cluster.list(POD, self.namespace)).items if is_ready(pod)]
            for number in range(JOBS):
                name = f"train-{number}"
                own = [pod for pod in pods if pod["metadata"]["labels"].get("job-name") == name]
                if len(own) == PODS:
                    complete.setdefault(name, loop.time())
                if name in complete and loop.time() - complete[name] >= RUN / 1000 and name not in ended:
                    ended.add(name)
                    for pod in own:
                        await self._succeed(pod)
                    with suppress(NotFound):  # an orphan would reserve its slots for ever
                        await self.cluster.delete(POD_GROUP, name, self.namespace)
            await asyncio.sleep(1.0)
        return len(ended)

    async def _succeed(self, pod: Object) -> None:
        status = {"status": {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]}}
        await self.cluster.patch(POD, name_of(pod), status, self.namespace, manager=MANAGER, subresource="status")

    async def delete(self) -> None:
        """Delete all jobs and PodGroups, and wait until no Pod is left."""
        for kind in (JOB, POD_GROUP):
            for one in (await self.cluster.list(kind, self.namespace)).items:
                with suppress(NotFound):
                    await self.cluster.delete(kind, name_of(one), self.namespace)

        async def gone() -> bool:
            return not (await self.cluster.list(POD, self.namespace)).items

        await eventually(gone, WITHIN)


@pytest.mark.skipif(not kwok.is_built(), reason="needs `python -m tests.testbed build --kwok`")
@pytest.mark.timeout(480)
async def test_five_gangs_end_one_after_another_where_the_default_scheduler_ends_none(
    volcano: None, cluster: Cluster, target: KubeTarget, namespace: str, tmp_path: Path
) -> None:
    gangs = Gangs(cluster, namespace)
    async with kwok.fake_nodes(cluster, target.kubeconfig, tmp_path, SLOT, SLOTS):
        await asyncio.gather(*(gangs.submit(number, gang=False) for number in range(JOBS)))
        apart = await gangs.play(60.0)
        await gangs.delete()
        for number in range(JOBS):
            await gangs.submit(number, gang=True)
        together = await gangs.play(WITHIN)
        await gangs.delete()
    print(f"{apart} of {JOBS} jobs ended with the default scheduler, {together} with Volcano")
    assert apart < together == JOBS
