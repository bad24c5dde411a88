"""Kubelets over a real cluster, with a tiny HTTP server as image."""

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
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.kubelet import Image, Kubelet, Settings, find_leftovers
from clusters.embedded.kubelet.pod_status import recorded_run
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
    """A Pod of the test server; `spec` goes over the Pod's, its `container` over the container's."""
    container = {"name": "server", "image": image, "args": list(args), "readinessProbe": READINESS}
    container |= spec.pop("container", {})
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5} | spec,
    }


class Nodes:
    """Kubelets of one state folder, one after the other; each test's own world."""

    def __init__(self, cluster: EmbeddedCluster, state: Path) -> None:
        self.cluster: Cluster = cluster
        self.state = state
        self.drained: list[str] = []
        self.images = {"server": Image((sys.executable, "-I", "-S", str(SERVER)))}
        self.settings = Settings(first_backoff=0.2, largest_backoff=0.4, drain_limit=1.0)
        self.kubelet: Kubelet | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, clock: Clock | None = None) -> Kubelet:
        """A kubelet on the state folder, its first look at the Pods done."""
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
        )
        self._task = asyncio.create_task(self._run(informers, self.kubelet))
        await self.kubelet.settled()
        return self.kubelet

    async def abandon(self) -> None:
        """The kubelet ends without a word to its processes."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def drain(self, pod: Object) -> None:
        """As the data plane would."""
        self.drained.append(pod["metadata"]["name"])

    async def pod(self, name: str) -> Object:
        """The stored Pod."""
        return await self.cluster.get(POD, name, NAMESPACE)

    async def create(self, pod: Object) -> Object:
        """Store a Pod."""
        return await self.cluster.create(POD, pod, manager="test")

    async def ready(self, name: str) -> Object:
        """The Pod once it is ready."""

        async def look() -> Object | None:
            pod = await self.pod(name)
            return pod if is_ready(pod) else None

        return await until(look)

    async def gone(self, name: str) -> None:
        """Wait until the Pod is not in the store."""

        async def look() -> bool:
            try:
                await self.pod(name)
            except NotFound:
                return True
            return False

        await until(look)

    async def container(self, name: str) -> dict[str, Any]:
        """The Pod's first container status, empty before there is one."""
        statuses = ((await self.pod(name)).get("status") or {}).get("containerStatuses") or [{}]
        return dict(statuses[0])

    async def restarts(self, name: str) -> int:
        """How often its container was restarted."""
        return int((await self.container(name)).get("restartCount", 0))

    @staticmethod
    async def _run(informers: Informers, kubelet: Kubelet) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(informers.run())
            group.create_task(kubelet.run())

    async def close(self) -> None:
        """End all that the test started."""
        await self.abandon()
        for leftover in find_leftovers(self.state):
            with contextlib.suppress(ProcessLookupError):
                os.kill(leftover.identity.pid, signal.SIGKILL)


async def until(look: Callable[[], Awaitable[T | None]]) -> T:
    """The first answer of `look` that is true."""
    predicate: Callable[[], Any] = look
    found: T = await eventually(predicate)
    return found


def process_of(pod: Object) -> Identity:
    """The process that the Pod's annotation names."""
    run = recorded_run(pod)
    assert run is not None
    return run.identity


def ended(identity: Identity) -> bool:
    """Whether the process has ended."""
    return not is_running(identity)


def environment_of(identity: Identity) -> dict[str, str]:
    """The environment that a process was started with."""
    lines = (PROC / str(identity.pid) / "environ").read_text().split("\0")
    return dict(line.split("=", 1) for line in lines if line)


async def connect(endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    """A connection, or None when nobody listens."""
    try:
        return await asyncio.open_connection(endpoint.host, endpoint.port)
    except ConnectionRefusedError:
        return None


async def get(pod: Object, path: str) -> str:
    """The body of an HTTP answer of the Pod's server."""
    endpoint: Endpoint | None = endpoint_of(pod)
    assert endpoint is not None
    reader, writer = await until(lambda: connect(endpoint))
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.partition(b"\r\n\r\n")[2].decode()
