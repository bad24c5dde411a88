"""Run kubelets on an embedded cluster, with a small HTTP server as image."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from clusters.base.api import Cluster
from clusters.base.clock import Clock, SystemClock
from clusters.base.errors import NotFound
from clusters.base.identity import PROC, Identity, is_running
from clusters.base.objects import POD, Object
from clusters.devices.machine import DeviceSource, NoDevices
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.kubelet import ContainerImage, Kubelet, KubeletSettings, find_leftovers
from clusters.embedded.kubelet.pod_status import read_container_record
from clusters.gateway.token import GatewayTokens
from clusters.net.endpoints import Endpoint, endpoint_of, is_ready
from clusters.runtime.informer import Informers
from tests.support.wait import eventually

T = TypeVar("T")
SERVER = Path(__file__).with_name("server.py")
NAMESPACE = "default"
TOKENS = GatewayTokens(b"key")
READINESS = {"httpGet": {"path": "/v2/health/ready", "port": 0}, "periodSeconds": 1}


def make_pod(name: str, *args: str, image: str = "server", **spec: Any) -> Object:
    """Return a Pod of the test server. `spec` overrides the Pod's spec, and its `container` the container's."""
    container = {"name": "server", "image": image, "args": list(args), "readinessProbe": READINESS}
    container |= spec.pop("container", {})
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5} | spec,
    }


class Nodes:
    """Start and stop kubelets of one state folder, one at a time."""

    def __init__(self, cluster: EmbeddedCluster, state: Path) -> None:
        self.cluster: Cluster = cluster
        self.state = state
        self.drained: list[str] = []
        self.images = {"server": ContainerImage((sys.executable, "-I", "-S", str(SERVER)))}
        self.settings = KubeletSettings(first_backoff=0.2, largest_backoff=0.4, drain_limit=1.0)
        self.devices: DeviceSource = NoDevices()
        self.kubelet: Kubelet | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, clock: Clock | None = None) -> Kubelet:
        """Start a kubelet and wait until it is synced."""
        informers = Informers(self.cluster)
        self.kubelet = Kubelet(
            self.cluster,
            informers,
            state_dir=self.state,
            images=self.images,
            drain=self.drain,
            tokens=TOKENS,
            clock=clock or SystemClock(),
            settings=self.settings,
            devices=self.devices,
        )
        self._task = asyncio.create_task(self._run(informers, self.kubelet))
        await self.kubelet.synced()
        return self.kubelet

    async def abandon(self) -> None:
        """Cancel the kubelet. The processes continue."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def drain(self, pod: Object) -> None:
        """Record the drain and return at once."""
        self.drained.append(pod["metadata"]["name"])

    async def pod(self, name: str) -> Object:
        """Return the stored Pod."""
        return await self.cluster.get(POD, name, NAMESPACE)

    async def create(self, pod: Object) -> Object:
        """Store a Pod."""
        return await self.cluster.create(POD, pod, manager="test")

    async def ready(self, name: str) -> Object:
        """Wait until the Pod is ready and return it."""

        async def check() -> Object | None:
            pod = await self.pod(name)
            return pod if is_ready(pod) else None

        return await until(check)

    async def gone(self, name: str) -> None:
        """Wait until the Pod is deleted."""

        async def check() -> bool:
            try:
                await self.pod(name)
            except NotFound:
                return True
            return False

        await until(check)

    async def container(self, name: str) -> dict[str, Any]:
        """Return the Pod's first container status, empty if there is none yet."""
        statuses = ((await self.pod(name)).get("status") or {}).get("containerStatuses") or [{}]
        return dict(statuses[0])

    async def restarts(self, name: str) -> int:
        """Return the restart count of the Pod's container."""
        return int((await self.container(name)).get("restartCount", 0))

    @staticmethod
    async def _run(informers: Informers, kubelet: Kubelet) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(informers.run())
            group.create_task(kubelet.run())

    async def close(self) -> None:
        """Stop the kubelet and kill all processes of the state folder."""
        await self.abandon()
        for leftover in find_leftovers(self.state):
            with contextlib.suppress(ProcessLookupError):
                os.kill(leftover.identity.pid, signal.SIGKILL)


async def until(check: Callable[[], Awaitable[T | None]]) -> T:
    """Wait until `check` returns a true value and return it."""
    predicate: Callable[[], Any] = check
    found: T = await eventually(predicate)
    return found


def process_of(pod: Object) -> Identity:
    """Return the process recorded in the Pod's annotation."""
    record = read_container_record(pod)
    assert record is not None
    return record.identity


def ended(identity: Identity) -> bool:
    """Return whether the process has ended."""
    return not is_running(identity)


def environment_of(identity: Identity) -> dict[str, str]:
    """Return the environment that a process was started with."""
    lines = (PROC / str(identity.pid) / "environ").read_text().split("\0")
    return dict(line.split("=", 1) for line in lines if line)


async def connect(endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    """Connect; return None when the connection is refused."""
    try:
        return await asyncio.open_connection(endpoint.host, endpoint.port)
    except ConnectionRefusedError:
        return None


async def get(pod: Object, path: str) -> str:
    """Return the body of an HTTP response of the Pod's server."""
    endpoint: Endpoint | None = endpoint_of(pod)
    assert endpoint is not None
    reader, writer = await until(lambda: connect(endpoint))
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    response = await reader.read()
    writer.close()
    await writer.wait_closed()
    return response.partition(b"\r\n\r\n")[2].decode()
