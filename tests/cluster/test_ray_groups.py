"""Ray Serve applications on several Pods, by the installed Knodel: lost workers, a canary between two groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clusters.base.api import Cluster
from clusters.base.objects import (
    EVENT,
    LABEL_REVISION,
    MODEL,
    NAMESPACE,
    POD,
    Object,
    condition_of,
    is_true,
    name_of,
    uid_of,
)
from serving.makers.pod_spec import server_settings
from serving.types.annotations import LABEL_ALLOW_CODE, LABEL_GROUP, LABEL_GROUP_ROLE
from serving.types.code import ALLOWED
from serving.types.settings.settings import Settings
from tests.cluster.place import MANAGER
from tests.scenarios.world import World
from tests.support.artifacts import ArtifactServer
from tests.support.wait import eventually

pytestmark = pytest.mark.timeout(1200)

WITHIN = 400.0  # s; a Ray of three nodes takes 30 s of processor time
APP = """\
import ray
from ray import serve


@serve.deployment(num_replicas=2, ray_actor_options={{"num_cpus": 1}})
class App:
    def __call__(self, request):
        return {{"version": "{version}", "node": ray.util.get_node_ip_address()}}


app = App.bind()
"""
POD_OF_RAY: dict[str, Any] = {"cpu": "100m", "memory": "1536Mi"}
SPEC: dict[str, Any] = {
    "modelFormat": "ray", "minReplicas": 1, "containerConcurrency": 8, "startupDeadline": "20m",
    "resources": POD_OF_RAY, "workers": {"count": 2, "resources": POD_OF_RAY},
}  # fmt: skip


@pytest.fixture
async def world(
    cluster: Cluster, namespace: str, installed: Settings, artifacts: ArtifactServer, tmp_path: Path
) -> AsyncIterator[World]:
    """The installed platform, and two versions of an application in a namespace that may run code."""
    if server_settings("", "ray", installed).image == installed.server.image:
        pytest.skip("no image with Ray here: on the testbed `python -m tests.testbed up --knodel --ray`")
    await cluster.patch(NAMESPACE, namespace, {"metadata": {"labels": {LABEL_ALLOW_CODE: ALLOWED}}}, manager=MANAGER)
    base = artifacts.uri("double").rpartition("/")[0]
    for version in ("1", "2"):
        (tmp_path / f"app{version}.py").write_text(APP.format(version=version))
    gateway = installed.gateway
    made = World(
        cluster, f"http://{gateway.address}:{gateway.port}", gateway.domain, lambda name: f"{base}/{name}",
        namespace=namespace, patience=60.0,
    )  # fmt: skip
    yield made
    await made.sweep()
    await made.close()


async def ask(world: World, namespace: str) -> Object:
    answer = await world.send("GET", "/", {"Host": world.host("spread", namespace)}, None)
    assert answer.status == 200, answer
    body: Object = answer.body
    return body


async def test_a_group_answers_from_its_workers_survives_a_loss_and_has_a_canary(
    cluster: Cluster, world: World, namespace: str
) -> None:
    uri = world.artifacts("app1.py")
    await world.deploy("spread", storageUri=uri, version="1", **SPEC)
    workers = (await cluster.list(POD, namespace, LABEL_GROUP)).items
    [leader] = (await cluster.list(POD, namespace, f"{LABEL_GROUP_ROLE}=leader")).items
    addresses = {str(pod["status"]["podIP"]) for pod in (leader, *workers)}
    nodes = {str((await ask(world, namespace))["node"]) for _ in range(20)}
    assert len(nodes) == 2 and nodes <= addresses
    condition = condition_of(await cluster.get(MODEL, "spread", namespace), "WorkersReady") or {}
    assert (condition["status"], condition["message"]) == ("True", f"{name_of(leader)}: 2 of 2 workers are ready")

    await cluster.delete(POD, name_of(workers[0]), namespace, grace_period=0)

    async def is_reported() -> bool:  # an Event stays, and a new worker may be there within a second
        events = (await cluster.list(EVENT, namespace)).items
        return any(one["reason"] == "WorkerLost" and one["involvedObject"]["name"] == name_of(leader) for one in events)

    await eventually(is_reported, WITHIN)

    async def is_complete_again() -> bool:
        pods = (await cluster.list(POD, namespace, LABEL_GROUP)).items
        ready = is_true(await cluster.get(POD, name_of(leader), namespace), "Ready")
        return ready and len(pods) == 2 and not {uid_of(pod) for pod in pods} & {uid_of(pod) for pod in workers}

    await eventually(is_complete_again, WITHIN)
    assert (await ask(world, namespace))["version"] == "1"

    tolerant = SPEC["workers"] | {"onLoss": "tolerate"}
    await world.deploy(
        "spread", storageUri=world.artifacts("app2.py"), version="2", canaryTrafficPercent=50, workers=tolerant
    )
    await world.carries("spread", {"spread-00001": 50, "spread-00002": 50}, namespace)
    assert {str((await ask(world, namespace))["version"]) for _ in range(40)} == {"1", "2"}
    assert len((await cluster.list(POD, namespace, LABEL_GROUP)).items) == 4

    [other] = (await cluster.list(POD, namespace, f"{LABEL_GROUP_ROLE}=leader,{LABEL_REVISION}=spread-00002")).items
    group = f"{LABEL_GROUP}={uid_of(other)}"
    lost, kept = (await cluster.list(POD, namespace, group)).items
    await cluster.delete(POD, name_of(lost), namespace, grace_period=0)
    readiness: list[bool] = []
    statuses: list[int] = []

    async def is_replaced() -> bool:
        readiness.append(is_true(await cluster.get(POD, name_of(other), namespace), "Ready"))
        statuses.append((await world.send("GET", "/", {"Host": world.host("spread", namespace)}, None)).status)
        pods = {uid_of(pod) for pod in (await cluster.list(POD, namespace, group)).items if is_true(pod, "Ready")}
        return len(pods) == 2 and uid_of(kept) in pods and uid_of(lost) not in pods

    await eventually(is_replaced, WITHIN)
    assert all(readiness)
    assert statuses.count(200) >= 0.9 * len(statuses), statuses
