"""What dies while a warm model serves: our controller, the API server, the store; no request may notice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clusters.api import Cluster
from clusters.errors import ClusterError
from clusters.objects import LEASE, MODEL, POD, Object, generation_of, is_true
from serving.apis.settings import Settings
from tests.scenarios.world import infer_body, model
from tests.support.artifacts import ArtifactServer
from tests.support.kubernetes import KubeTarget
from tests.support.prober import Probes, probing
from tests.support.wait import eventually
from tests.testbed import testbed

MANAGER = "tests"
SYSTEM = "knodel-system"
NAME = "warm"
WITHIN = 120.0  # s
MORE = 100  # answers after the fault is over
SMALL = {"resources": {"cpu": "50m", "memory": "256Mi"}, "minReplicas": 1}


@pytest.fixture
def on_the_testbed(target: KubeTarget) -> None:
    """These tests kill processes of the testbed; they have no business on any other cluster."""
    if target.audit_log is None:
        pytest.skip("only the testbed's processes may be killed")


async def controller_pid(cluster: Cluster) -> int:
    """The leading controller, as a process of this machine: the first one in its container's cgroup."""
    lease = await cluster.get(LEASE, "knodel-controller", SYSTEM)
    holder = str(lease["spec"]["holderIdentity"])
    pods = (await cluster.list(POD, SYSTEM)).items
    leader = next(pod for pod in pods if pod["metadata"]["name"] in holder)
    container = str(leader["status"]["containerStatuses"][0]["containerID"]).rpartition("/")[2]
    return min(int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cgroup") if container in _read(path))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has ended meanwhile
        return ""


async def kill_controller(cluster: Cluster) -> None:
    """`kill -9` of the replica that leads; the kubelet starts it again, the other one takes over."""
    os.kill(await controller_pid(cluster), signal.SIGKILL)


async def kill_api_server(_: Cluster) -> None:
    """`kill -9` of kube-apiserver; the testbed starts it again."""
    await kill_component("kube-apiserver")


async def kill_store(_: Cluster) -> None:
    """`kill -9` of etcd; the testbed starts it again."""
    await kill_component("etcd")


async def kill_component(name: str) -> None:
    """`kill -9` by the recorded id, then a start of the same component."""
    await asyncio.to_thread(testbed.kill, name)
    await asyncio.to_thread(testbed.restart, name)


@pytest.mark.parametrize("kill", [kill_controller, kill_api_server, kill_store])
async def test_a_warm_model_answers_every_request_and_changes_go_on_afterwards(
    cluster: Cluster,
    target: KubeTarget,
    installed: Settings,
    namespace: str,
    artifacts: ArtifactServer,
    on_the_testbed: None,
    kill: Callable[[Cluster], Any],
) -> None:
    await cluster.create(MODEL, model(NAME, namespace, storageUri=artifacts.uri("double"), **SMALL), manager=MANAGER)
    await ready(cluster, namespace, 1)
    gateway = installed.gateway
    url = f"http://{gateway.address}:{gateway.port}/v2/models/{NAME}/infer"
    headers = {"Host": f"{NAME}.{namespace}.{gateway.domain}", "Content-Type": "application/json"}

    async with probing(url, headers, infer_body(1.0), rate=20.0) as probes:
        await answers(probes, MORE)
        await kill(cluster)
        await answers(probes, MORE)
        change = {"spec": {"storageUri": artifacts.uri("triple"), "version": "2"}}
        changed = await patched(cluster, namespace, change)
        await ready(cluster, namespace, generation_of(changed))
        await answers(probes, MORE)

    assert probes.failures == []
    assert probes.answered > 3 * MORE


async def ready(cluster: Cluster, namespace: str, generation: int) -> None:
    """Return once the Model is Ready at that generation."""

    async def done() -> bool:
        try:
            found = await cluster.get(MODEL, NAME, namespace)
        except ClusterError:
            return False  # the API server is coming back
        seen = int((found.get("status") or {}).get("observedGeneration", 0))
        return seen >= generation and is_true(found, "Ready")

    await eventually(done, WITHIN)


async def patched(cluster: Cluster, namespace: str, change: Object) -> Object:
    """The Model after `change`, once the API server takes it."""

    async def sent() -> Object | None:
        try:
            return await cluster.patch(MODEL, NAME, change, namespace, manager=MANAGER)
        except ClusterError:
            return None

    found = await eventually(sent, WITHIN)
    if found is None:
        raise AssertionError("the change was never taken")
    return found


async def answers(probes: Probes, more: int) -> None:
    """Return once that many more requests have been answered."""
    wanted = probes.answered + len(probes.failures) + more

    async def enough() -> bool:
        return probes.answered + len(probes.failures) >= wanted

    await eventually(enough, WITHIN)
