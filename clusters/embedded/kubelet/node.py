"""The node of the embedded cluster: the parts that the workers of all Pods share."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError, NotFound
from clusters.base.objects import CONFIG_MAP, POD, SECRET, Object, key_of
from clusters.embedded.kubelet.gpus.device_manager import DeviceManager
from clusters.embedded.kubelet.gpus.mps import MpsDaemons
from clusters.embedded.kubelet.ports import PortAllocator
from clusters.embedded.kubelet.process.folders import Folders
from clusters.embedded.kubelet.process.images import ContainerImage
from clusters.embedded.kubelet.process.pod_runtime import PodRuntime
from clusters.embedded.store.secrets import values_of
from clusters.gateway.token import GatewayTokens
from clusters.runtime.recorder import EventType, Recorder

log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"  # address of the node and of all its Pods
MANAGER: Final = "kubelet"
FIRST_BACKOFF: Final = 10.0  # s; `backOffPeriod` of Kubernetes' kubelet
LARGEST_BACKOFF: Final = 300.0  # s; `MaxContainerBackOff` of Kubernetes' kubelet
DRAIN_LIMIT: Final = 10.0  # s; a gateway that does not respond must not block a deletion

Drain = Callable[[Object], Awaitable[None]]
"""Wait until the data plane sends no more requests to the Pod."""


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """Times of the kubelet in seconds: the limits of the restart back-off, and the longest wait for a drain."""

    first_backoff: float = FIRST_BACKOFF
    largest_backoff: float = LARGEST_BACKOFF
    drain_limit: float = DRAIN_LIMIT


@dataclass(frozen=True, slots=True)
class Node:
    """The node's identity, folders, ports, runtime and clients."""

    name: str
    cluster: Cluster
    clock: Clock
    folders: Folders
    images: Mapping[str, ContainerImage]
    ports: PortAllocator
    runtime: PodRuntime
    drain: Drain
    recorder: Recorder
    settings: KubeletSettings
    tokens: GatewayTokens
    devices: DeviceManager
    mps: MpsDaemons

    async def record(self, pod: Object, type: EventType, reason: str, message: str) -> None:
        """Record an Event about the Pod. An Event that cannot be written is logged."""
        try:
            await self.recorder.event(POD, pod, type, reason, message)
        except ClusterError as error:
            log.info("pod %s: %s: %s (Event not written: %s)", key_of(pod), reason, message, error)

    async def read_secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """Return the decoded values of a Secret, None when it does not exist. Raises Unavailable."""
        try:
            secret = await self.cluster.get(SECRET, name, namespace)
        except NotFound:
            return None
        return values_of(secret)

    async def read_config_map(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """Return the encoded values of a ConfigMap, None when it does not exist. Raises Unavailable."""
        try:
            config_map = await self.cluster.get(CONFIG_MAP, name, namespace)
        except NotFound:
            return None
        return config_map_values(config_map)


def config_map_values(config_map: Object) -> Mapping[str, bytes]:
    """Return the encoded values of a ConfigMap."""
    return {key: str(value).encode() for key, value in (config_map.get("data") or {}).items()}
