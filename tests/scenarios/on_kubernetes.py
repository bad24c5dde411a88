"""The scenarios on Kubernetes: Knodel as it is installed there, seen through API server and ingress."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from clusters.base.api import Cluster
from clusters.base.objects import CONFIG_MAP, DEPLOYMENT, NAMESPACE, POD, Object, timestamp, uid_of
from clusters.runtime.manager.options import SYSTEM_NAMESPACE
from serving.install.kinds import CORE_SERVICE
from tests.eventing.scripted_receiver import Receiver, receiver
from tests.scenarios.events import Events
from tests.scenarios.world import MANAGER, World
from tests.support.artifacts import artifact_server
from tests.support.kubernetes import KubeTarget, installed_settings, kube_target, kubernetes_cluster
from tests.support.wait import eventually

SMALL = {"resources": {"cpu": "30m", "memory": "256Mi"}}
"""Of every Model: many of them share the testbed's two cores."""
PATIENCE = 4.0
"""A Pod takes seconds to start, and a leaving one half a minute: queue-proxy drains."""
LACKS = {
    "vllm": "the image of the servers has no program vllm",
    "gateway": "plain Knative; knodel-gateway comes in front of it later",
}
CONTROLLER: Final = "knodel-controller"
REPLACED_WITHIN = 120.0
"""s; the controllers' Pods come one after the other."""


@asynccontextmanager
async def world(config: pytest.Config, folder: Path) -> AsyncIterator[World]:
    """The cluster that the options name, with Knodel installed, and artifacts in `folder`."""
    target = kube_target(config)
    async with kubernetes_cluster(target) as cluster, _namespace(cluster) as namespace:
        gateway = (await installed_settings(cluster)).gateway
        with artifact_server(folder, target.server) as artifacts:
            made = World(
                cluster,
                f"http://{gateway.address}:{gateway.port}",
                gateway.domain,
                artifacts.uri,
                namespace=namespace,
                address=artifacts.address,
                defaults=SMALL,
                patience=PATIENCE,
                lacks=LACKS,
                events=await _events(cluster, target, folder, artifacts.address, namespace),
                openai=f"{await _service(cluster, 'knodel-router')}/namespaces/{namespace}/openai/v1",
            )
            yield made
            await made.close()


@asynccontextmanager
async def _namespace(cluster: Cluster) -> AsyncIterator[str]:
    """Create a namespace for the scenarios of one process, so that several processes run theirs side by side."""
    name = f"scenarios-{uuid.uuid4().hex[:6]}"
    await cluster.create(NAMESPACE, {"metadata": {"name": name}}, manager=MANAGER)
    try:
        yield name
    finally:
        await cluster.delete(NAMESPACE, name)


async def _events(cluster: Cluster, target: KubeTarget, folder: Path, address: str, namespace: str) -> Events:
    """The webhook at its Service's address, which this machine reaches as it does the gateway's."""
    webhook = await _service(cluster, "knodel-eventing")
    environment, options = {"KUBECONFIG": str(target.kubeconfig)}, ("--kube-context", target.context)
    sink = partial(_sink, cluster, address)
    return Events(f"{webhook}/events", folder, environment, options, namespace, sink)


async def _service(cluster: Cluster, name: str) -> str:
    """The address of one of Knodel's Services, which this machine reaches."""
    service = (await cluster.get(CORE_SERVICE, name, SYSTEM_NAMESPACE))["spec"]
    [port] = [one["port"] for one in service["ports"] if one["name"] == "http"]
    return f"http://{service['clusterIP']}:{port}"


@asynccontextmanager
async def _sink(cluster: Cluster, address: str) -> AsyncIterator[Receiver]:
    """A sink at an address of this machine, which the controllers are told of for as long as it is there."""
    text = (await cluster.get(CONFIG_MAP, "knodel-config", SYSTEM_NAMESPACE))["data"]["config.yaml"]
    settings: dict[str, Any] = yaml.safe_load(text) or {}
    with receiver(202, address=address) as sink:
        events = {**(settings.get("events") or {}), "sink": sink.url}
        try:
            await _configure(cluster, yaml.safe_dump({**settings, "events": events}))
            yield sink
        finally:
            await _configure(cluster, text)


async def _configure(cluster: Cluster, text: str) -> None:
    """Write the settings, and return once controllers alone run that have started with them."""
    await cluster.patch(CONFIG_MAP, "knodel-config", {"data": {"config.yaml": text}}, SYSTEM_NAMESPACE, manager=MANAGER)
    former = {uid_of(pod) for pod in await _pods(cluster)}
    again = {"kubectl.kubernetes.io/restartedAt": timestamp(datetime.now(UTC))}
    patch = {"spec": {"template": {"metadata": {"annotations": again}}}}
    await cluster.patch(DEPLOYMENT, CONTROLLER, patch, SYSTEM_NAMESPACE, manager=MANAGER)

    async def replaced() -> bool:
        found = await cluster.get(DEPLOYMENT, CONTROLLER, SYSTEM_NAMESPACE)
        available = int((found.get("status") or {}).get("availableReplicas") or 0)
        present = {uid_of(pod) for pod in await _pods(cluster)}
        return not present & former and available >= found["spec"]["replicas"]

    await eventually(replaced, REPLACED_WITHIN)


async def _pods(cluster: Cluster) -> list[Object]:
    return list((await cluster.list(POD, SYSTEM_NAMESPACE, f"app.kubernetes.io/name={CONTROLLER}")).items)
