"""Simulate a node: Pods that start, become ready, fail and stop, without processes."""

from __future__ import annotations

from datetime import UTC, datetime

from clusters.base.api import Cluster
from clusters.base.objects import POD, Object, name_of, namespace_of, timestamp

NODE = "node"


async def bind(cluster: Cluster, pod: Object) -> None:
    """Bind the Pod to the node. Its deletion then waits for `stop`."""
    patch = {"spec": {"nodeName": "node"}}
    await cluster.patch(POD, name_of(pod), patch, namespace_of(pod), manager=NODE)


async def become(cluster: Cluster, pod: Object, *, ready: bool, phase: str = "Running") -> None:
    """Report a phase and readiness."""
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastTransitionTime": timestamp(datetime.now(UTC)),
    }
    patch = {"status": {"phase": phase, "conditions": [condition]}}
    await cluster.patch(POD, name_of(pod), patch, namespace_of(pod), manager=NODE, subresource="status")


async def stop(cluster: Cluster, pod: Object) -> None:
    """Remove a Pod whose processes have ended."""
    await cluster.delete(POD, name_of(pod), namespace_of(pod), grace_period=0)
