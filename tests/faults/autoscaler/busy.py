"""A Model that is busy enough for several replicas, and what the autoscaler asks for."""

from __future__ import annotations

import asyncio
import json
import time

from clusters.base.objects import DEPLOYMENT
from serving.client.client import Client
from serving.client.state import LocalPlatform
from tests.faults.kit import programs
from tests.platform.machine import Machine
from tests.support.wait import eventually

NAME = "busy"
CALLERS = 8
LEAST = 3  # replicas under this load: 8 callers, 2 for a replica, 4 at most
LOOK_EVERY = 0.1  # s
GROWN_WITHIN = 40.0  # s


async def deploy(here: Machine, name: str = NAME, **spec: object) -> None:
    """The Model, ready. An answer takes it 0.2 s, and no core."""
    uri = programs.write(here.folder, "sleeper", programs.sleeper(0.2))
    fields = {"storageUri": uri, "modelFormat": "python", "minReplicas": 1, "maxReplicas": 4, "scaleTarget": 2, **spec}
    made = {"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": {"name": name}, "spec": fields}
    path = here.folder / f"{name}.yaml"
    path.write_text(json.dumps(made))
    await asyncio.to_thread(here.run, "deploy", "-f", str(path))


def replicas(here: Machine, name: str = NAME) -> int:
    """What the Deployment is asked for."""
    client = Client(LocalPlatform.find(here.state))
    return int(client.get(DEPLOYMENT, f"{name}-00001-deployment", "default")["spec"]["replicas"])


async def grown(here: Machine) -> int:
    """The replicas that are asked for, once they are several."""
    return await eventually(lambda: found if (found := replicas(here)) >= LEAST else 0, GROWN_WITHIN)


async def watched(here: Machine, seconds: float, name: str = NAME) -> list[int]:
    """What is asked for, again and again for so long."""
    seen, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        seen.append(await asyncio.to_thread(replicas, here, name))
        await asyncio.sleep(LOOK_EVERY)
    return seen
