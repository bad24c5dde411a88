"""Control-plane replicas of the tests' own on a real cluster: they act in one namespace, with settings of their own.

Where Knodel is installed its Lease is taken for as long (`tests.cluster.leases`).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import LEASE, Kind
from clusters.runtime.manager.options import Options
from clusters.runtime.manager.process import ControlPlaneProgram, run_replica
from serving.types.settings.settings import Settings, settings_from_text, settings_to_dict
from tests.cluster import leases
from tests.support.kubernetes import KubeTarget, installed_settings, kubernetes_cluster
from tests.support.wait import eventually

T = TypeVar("T")

MANAGER = "tests"
WRITES = frozenset({"create", "apply", "patch", "delete", "scale"})
TESTBED = """
gateway: {address: 198.18.128.80, port: 80, domain: knodel.test}
server: {image: 'dev.local/knodel-server:0.1.0', allowHosts: 198.19.255.1}
"""
"""What holds on the testbed where Knodel is not installed."""


class Recording:
    """A cluster that notes what is written to it, Leases apart."""

    def __init__(self, cluster: Cluster) -> None:
        self.writes: list[tuple[str, str, str]] = []
        self._cluster = cluster

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._cluster, verb)
        if verb not in WRITES:
            return method

        def noted(kind: Kind, what: Any, *arguments: Any, **keywords: Any) -> Any:
            if kind is not LEASE:
                self.writes.append((verb, kind.kind, what if isinstance(what, str) else what["metadata"].get("name")))
            return method(kind, what, *arguments, **keywords)

        return noted


async def settings_of(cluster: Cluster) -> Settings:
    """Those of the installed Knodel, else the testbed's."""
    try:
        return await installed_settings(cluster)
    except NotFound:
        return settings_from_text(TESTBED, "the tests")


@asynccontextmanager
async def acting(
    program: ControlPlaneProgram[T],
    cluster: Cluster,
    target: KubeTarget,
    namespace: str,
    folder: Path,
    settings: Settings,
    record: Callable[[Cluster], Recording] = Recording,
) -> AsyncIterator[Recording]:
    """A leading replica of the program in `namespace` until the end of the block; what it writes is recorded."""
    identity = f"tests-{uuid.uuid4().hex[:10]}"
    system = await leases.take(cluster, program.lease, namespace, identity)
    config = folder / f"{program.lease}.yaml"
    config.write_text(yaml.safe_dump(settings_to_dict(settings)))
    stop = asyncio.Event()
    async with kubernetes_cluster(target) as connection:
        recording = record(connection)

        @asynccontextmanager
        async def connect(_: Options) -> AsyncIterator[Cluster]:
            yield cast(Cluster, recording)

        options = _options(config, namespace, system, identity)
        replica = asyncio.create_task(run_replica(replace(program, connect=connect), options, stop))
        try:
            await eventually(lambda: _leads(cluster, program.lease, system, identity, replica))
            yield recording
        finally:
            stop.set()
            await replica


def _options(config: Path, namespace: str, system: str, identity: str) -> Options:
    return Options(
        config=config,
        kubeconfig=None,
        kube_context="",
        namespace=namespace,
        system_namespace=system,
        identity=identity,
        host="127.0.0.1",
        probe_port=0,
        metrics_port=0,
        log_format="text",
        log_level="info",
    )


async def _leads(cluster: Cluster, name: str, namespace: str, identity: str, replica: asyncio.Task[None]) -> bool:
    if replica.done():
        replica.result()
    try:
        spec = (await cluster.get(LEASE, name, namespace))["spec"]
    except NotFound:
        return False
    return bool(spec["holderIdentity"] == identity and spec.get("leaseTransitions") is not None)
