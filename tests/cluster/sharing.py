"""An elastic Job and Models on the GPUs of one node, on the installed platform and a real scheduler."""

from __future__ import annotations

from typing import Any

from autoscaler.gpu.elastic import JOB
from clusters.base.api import Cluster
from clusters.base.objects import EVENT, POD, Object, is_deleting, labels_of, name_of
from clusters.net.endpoints import is_ready
from tests.cluster.jobs import make_job
from tests.cluster.place import MANAGER, SMALL
from tests.scenarios.world import World

END, START = 2.0, 25.0
"""s: a trainer's end, and the start of a Pod on the busy machine of the tests."""
TRAINER = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(143)); time.sleep(3600)"
"""A worker that ends with 0 would count as the Job's success, after which no worker is created."""
LONG = 60.0  # s, times the world's patience


class SharedGpus:
    """The Job `train`, and Models with one GPU for each replica. `resource` is the name of the GPUs."""

    def __init__(self, cluster: Cluster, world: World, namespace: str, image: str, resource: str) -> None:
        self.cluster = cluster
        self.world = world
        self.namespace = namespace
        self.resource = resource
        self._image = image

    async def create_job(self, least: int, most: int) -> None:
        """Create the Job at its minimum."""
        small = {"cpu": "10m", "memory": "64Mi", self.resource: "1"}
        made = make_job(
            "train", self.namespace, least, small, elastic=(least, most), image=self._image,
            command=["python", "-c", TRAINER],
        )  # fmt: skip
        await self.cluster.create(JOB, made, manager=MANAGER)

    async def trainers_are(self, number: int) -> None:
        """Return once so many trainers run, and the Job wants as many."""

        async def holds() -> bool:
            job = await self.cluster.get(JOB, "train", self.namespace)
            pods = (await self.cluster.list(POD, self.namespace)).items
            running = [pod for pod in pods if labels_of(pod).get("job-name") == "train" and is_ready(pod)]
            found = (job["spec"]["parallelism"], len(running))
            assert found == (number, number), found
            return True

        await self.world.eventually(holds, LONG)

    async def deploy(self, name: str, **spec: Any) -> Object:
        """Deploy a Model with one GPU for each replica."""
        resources = {**SMALL["resources"], "gpu": 1, "gpuResource": self.resource}
        uri = self.world.artifacts("double")
        fields = {"resources": resources, "scaleToZeroAfter": "1s", **spec}
        return await self.world.deploy(name, namespace=self.namespace, storageUri=uri, **fields)

    async def has_no_replica(self, name: str) -> None:
        """Return once the Model is at zero."""

        async def holds() -> bool:
            pods = (await self.cluster.list(POD, self.namespace)).items
            return not [pod for pod in pods if name_of(pod).startswith(f"{name}-0") and not is_deleting(pod)]

        await self.world.eventually(holds, LONG)

    async def events(self) -> list[str]:
        """The messages of Events about the Job."""
        found = (await self.cluster.list(EVENT, self.namespace)).items
        return [one["message"] for one in found if one["involvedObject"]["kind"] == "Job"]
