"""What all Pods of the embedded cluster's one node share."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError, NotFound
from clusters.base.objects import CONFIG_MAP, POD, SECRET, Object, key_of
from clusters.embedded.kubelet.backoff import FIRST_BACKOFF, LARGEST_BACKOFF
from clusters.embedded.kubelet.ports import PortAllocator
from clusters.embedded.kubelet.process.folders import Folders
from clusters.embedded.kubelet.process.images import Image
from clusters.embedded.kubelet.process.pod_runtime import PodRuntime
from clusters.embedded.store.secrets import values_of
from clusters.gateway.token import GatewayTokens
from clusters.runtime.recorder import EventType, Recorder

log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"  # address of the node, and of all its Pods
MANAGER: Final = "kubelet"
DRAIN_LIMIT: Final = 10.0  # s for the data plane to take a Pod out; a gateway that is down must not hold a deletion up

Drain = Callable[[Object], Awaitable[None]]
"""Returns once nothing routes to the Pod any more."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the kubelet times things; seconds."""

    first_backoff: float = FIRST_BACKOFF
    largest_backoff: float = LARGEST_BACKOFF
    drain_limit: float = DRAIN_LIMIT


@dataclass(frozen=True, slots=True)
class Node:
    """The node as its Pods see it."""

    name: str
    cluster: Cluster
    clock: Clock
    folders: Folders
    images: Mapping[str, Image]
    ports: PortAllocator
    runtime: PodRuntime
    drain: Drain
    recorder: Recorder
    settings: Settings
    tokens: GatewayTokens

    async def record(self, pod: Object, type: EventType, reason: str, message: str) -> None:
        """An Event about the Pod; one that cannot be written is logged."""
        try:
            await self.recorder.event(POD, pod, type, reason, message)
        except ClusterError as error:
            log.info("pod %s: %s: %s (not recorded: %s)", key_of(pod), reason, message, error)

    async def read_secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """The decoded values of a Secret, None when there is none. Raises Unavailable."""
        try:
            secret = await self.cluster.get(SECRET, name, namespace)
        except NotFound:
            return None
        return values_of(secret)

    async def read_config_map(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """Return the texts of a ConfigMap, encoded; None when there is none. Raises Unavailable."""
        try:
            found = await self.cluster.get(CONFIG_MAP, name, namespace)
        except NotFound:
            return None
        return {key: str(value).encode() for key, value in (found.get("data") or {}).items()}
