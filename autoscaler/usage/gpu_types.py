"""Types of the GPUs that Pods have, by the labels of their nodes, so that bills can price them.

The type is a part of the resource's name in a usage account: `nvidia.com/gpu:NVIDIA-H100-80GB-HBM3`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from autoscaler.gpu.units import is_gpu, requested_by, type_of
from autoscaler.usage.meter import TYPE_SEPARATOR, Replica
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError
from clusters.base.objects import NODE, Object, labels_of

KEPT: Final = 600.0
"""Seconds until the labels of a node are read again: labellers of vendors may write them after the first Pod starts."""

AT_ONCE: Final = 16
"""Nodes that are read at the same time. The pass of a revision waits for them once."""

log = logging.getLogger(__name__)


class GpuTypes:
    """Labels of the nodes on which Pods with GPUs run. Other nodes are not read."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._labels: dict[str, Mapping[str, str]] = {}
        self._read_at: dict[str, float] = {}

    async def learn(self, pods: Iterable[Object]) -> None:
        """Read the nodes of Pods with GPUs, `AT_ONCE` of them at most; the others are read by later calls.

        Without the right to read them, and in a cluster without Nodes, the types stay unknown.
        """
        now = self._clock.monotonic()
        unread: set[str] = set()
        for pod in pods:
            node = _node_of(pod)
            is_known = now - self._read_at.get(node, float("-inf")) < KEPT
            if node and not is_known and any(map(is_gpu, requested_by(pod))):
                unread.add(node)
        chosen = sorted(unread)[:AT_ONCE]
        self._read_at |= dict.fromkeys(chosen, now)
        await asyncio.gather(*map(self._read, chosen))

    def with_types(self, replica: Replica, pods: Iterable[Object]) -> Replica:
        """Return the resources of a replica with the type of GPU that most of the Pods have.

        Names without a known type stay as they are.
        """
        nodes = Counter(node for pod in pods if (node := _node_of(pod)) in self._labels)
        named = {}
        for name, amount in replica.items():
            resource = name.partition(TYPE_SEPARATOR)[0]
            types: Counter[str] = Counter()
            for node, count in nodes.items() if is_gpu(resource) else ():
                types[type_of(resource, self._labels[node])] += count
            del types[""]
            best = max(types, key=lambda kind: (types[kind], kind), default="")
            named[f"{resource}{TYPE_SEPARATOR}{best}" if best else name] = amount
        return named

    async def _read(self, node: str) -> None:
        try:
            self._labels[node] = labels_of(await self._cluster.get(NODE, node))
        except ClusterError as error:
            log.info("the GPU type of node %s is unknown: %s", node, error)


def _node_of(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")
