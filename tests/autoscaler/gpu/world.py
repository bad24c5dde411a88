"""A Revision and elastic Jobs that share the GPUs of one node; the test plays scheduler, kubelet and Job controller."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from autoscaler.gpu.claims import AllocationSettings
from autoscaler.gpu.elastic import ANNOTATION_ELASTIC, ELASTIC_KINDS
from autoscaler.gpu.sharing import GpuSharing
from autoscaler.gpu.watch import GpuWatch, trim_job
from autoscaler.types import Policy
from clusters.base.clock import SystemClock
from clusters.base.objects import (
    DEPLOYMENT,
    EVENT,
    LABEL_REVISION,
    NODE,
    POD,
    Kind,
    Object,
    is_deleting,
    labels_of,
    name_of,
    owner_reference,
    timestamp,
    uid_of,
)
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.workloads import Workloads
from clusters.runtime.informer import Informers
from tests.autoscaler.world import DEPLOYMENT_NAME, REVISION_NAME, TEST, World, running
from tests.support.clock import SteppedClock
from tests.support.loops import at_work
from tests.support.wait import eventually

GPU = "nvidia.com/gpu"
JOB = Kind("batch", "v1", "Job", "jobs")
MODEL = "chat"
POLICY = Policy(scale_target=1, target_utilization=1, max_replicas=4, scale_to_zero_after=20, initial_scale=0)


class GpuWorld:
    """The node `a`, the Model `chat` in namespace `default`, and Jobs; each of their Pods takes one GPU.

    Pods that are deleted end `end` seconds later.
    """

    def __init__(self, world: World, cluster: EmbeddedCluster, end: float = 0.0) -> None:
        self.world = world
        self.cluster = cluster
        self.end = end
        self._ends: dict[str, float] = {}
        self._made = 0

    async def create_node(self, gpus: int) -> None:
        """Create the node."""
        status = {"allocatable": {GPU: str(gpus)} if gpus else {}, "conditions": [{"type": "Ready", "status": "True"}]}
        await self.cluster.create(NODE, {"metadata": {"name": "a"}}, manager=TEST)
        await self.cluster.patch(NODE, "a", {"status": status}, manager=TEST, subresource="status")

    async def create_job(self, name: str, least: int, most: int, size: int) -> None:
        """Create an elastic Job."""
        server = {"name": "main", "image": "train:1", "resources": {"limits": {GPU: "1"}}}
        annotation = json.dumps({"min": least, "max": most})
        meta = {"name": name, "namespace": "default", "annotations": {ANNOTATION_ELASTIC: annotation}}
        spec = {"parallelism": size, "template": {"spec": {"containers": [server]}}}
        await self.cluster.create(JOB, {"metadata": meta, "spec": spec}, manager=TEST)

    async def size(self, name: str = "train") -> int:
        """Return the parallelism of a Job."""
        return int((await self.cluster.get(JOB, name, "default"))["spec"]["parallelism"])

    async def pods(self, job: str = "") -> list[Object]:
        """Return the Pods of a Job, or of the Revision, that have a node."""
        found = (await self.cluster.list(POD, "default")).items
        return [
            pod
            for pod in found
            if pod["spec"].get("nodeName") and (labels_of(pod).get("job-name", "") == job) and not is_deleting(pod)
        ]

    async def events(self) -> list[str]:
        """Return the messages of Events about Jobs, in the order of their names."""
        found = (await self.cluster.list(EVENT, "default")).items
        return sorted(one["message"] for one in found if one["involvedObject"]["kind"] == "Job")

    async def pass_time(self, seconds: int) -> None:
        """Advance the clock; controllers and the node act each second."""
        for _ in range(seconds):
            await self.act()
            await self.world.pass_time(1.0)
            self.world.autoscaler.reconsider()  # a pass that comes later in real time
            await asyncio.sleep(0.01)

    async def act(self) -> None:
        """Let the Job controller create and delete Pods, and the node start and end them."""
        for job in (await self.cluster.list(JOB)).items:
            await self._run_job(job)
        pods = (await self.cluster.list(POD)).items
        for pod in pods:
            if is_deleting(pod):
                now = self.world.clock.monotonic()
                if now >= self._ends.setdefault(uid_of(pod), now + self.end):
                    await self.cluster.delete(POD, name_of(pod), "default", grace_period=0)
        node = await self.cluster.get(NODE, "a")
        pods = (await self.cluster.list(POD)).items
        free = int(node["status"]["allocatable"].get(GPU, 0)) - sum(1 for pod in pods if pod["spec"].get("nodeName"))
        for pod in pods:
            if not pod["spec"].get("nodeName") and not is_deleting(pod):
                await self._schedule(pod, placed=free > 0)
                free -= 1

    async def _run_job(self, job: Object) -> None:
        pods = [pod for pod in (await self.cluster.list(POD)).items if labels_of(pod).get("job-name") == name_of(job)]
        active = sorted(
            (pod for pod in pods if not is_deleting(pod)), key=lambda pod: bool(pod["spec"].get("nodeName"))
        )
        wanted = int(job["spec"]["parallelism"])
        for pod in active[: max(0, len(active) - wanted)]:
            await self.cluster.delete(POD, name_of(pod), "default", grace_period=30 if self.end else 0)
        for _ in range(wanted - len(active)):
            self._made += 1
            meta = {
                "name": f"{name_of(job)}-{self._made}",
                "namespace": "default",
                "labels": {"job-name": name_of(job)},
                "ownerReferences": [owner_reference(JOB, job)],
            }
            await self.cluster.create(POD, {"metadata": meta, "spec": job["spec"]["template"]["spec"]}, manager=TEST)

    async def _schedule(self, pod: Object, *, placed: bool) -> None:
        at = timestamp(self.world.clock.now())
        if not placed:
            if (pod.get("status") or {}).get("conditions"):
                return
            lacks = f"0/1 nodes are available: 1 Insufficient {GPU}"
            unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": lacks,
                           "lastTransitionTime": at}  # fmt: skip
            status: Object = {"phase": "Pending", "conditions": [unscheduled]}
        else:
            scheduled, ready = (
                {"type": kind, "status": "True", "lastTransitionTime": at} for kind in ("PodScheduled", "Ready")
            )
            status = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [scheduled, ready]}
            await self.cluster.patch(POD, name_of(pod), {"spec": {"nodeName": "a"}}, "default", manager=TEST)
        await self.cluster.patch(POD, name_of(pod), {"status": status}, "default", manager=TEST, subresource="status")


@asynccontextmanager
async def gpu_world(
    cluster: EmbeddedCluster,
    gpus: int = 4,
    *,
    policy: Policy = POLICY,
    replicas: int = 0,
    end: float = 0.0,
    settings: AllocationSettings | None = None,
) -> AsyncIterator[GpuWorld]:
    """Run the autoscaler over a node and a Model."""
    clock = SteppedClock()
    watch = GpuWatch(cluster, clock, dict.fromkeys(ELASTIC_KINDS, trim_job))
    sharing = GpuSharing(watch, settings or AllocationSettings(), clock, 1.0)
    world, informers = World(cluster, clock, gpus=sharing), Informers(cluster)
    made = GpuWorld(world, cluster, end)
    await made.create_node(gpus)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(world))
        await world.create_revision(policy, replicas=replicas, labels={"knodel.dev/model": MODEL})
        labels = {LABEL_REVISION: REVISION_NAME}
        server = {"name": "server", "image": "server:1", "resources": {"limits": {GPU: "1"}}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [server]}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        await cluster.patch(DEPLOYMENT, DEPLOYMENT_NAME, {"spec": spec}, "default", manager=TEST)
        workloads = Workloads(cluster, informers, SystemClock())
        await stack.enter_async_context(at_work(informers.run(), workloads.run()))
        await eventually(lambda: watch.synced)
        await world.until(world.mode, "Proxy")
        await world.report_services(in_path=True)
        yield made
