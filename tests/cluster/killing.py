"""`kill -9` of the testbed's parts: containers of Pods by their processes on this machine, components by their ids."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

from clusters.base.api import Cluster
from clusters.base.objects import LEASE, POD, Object, name_of
from tests.support.containers import processes_of
from tests.testbed import testbed

Kill = Callable[[Cluster], Awaitable[None]]

KNODEL = "knodel-system"
KNATIVE = "knative-serving"


def leader(lease: str) -> Kill:
    """The replica of ours that holds the Lease; the kubelet starts it again, the other one may take over."""

    async def kill(cluster: Cluster) -> None:
        holder = str((await cluster.get(LEASE, lease, KNODEL))["spec"]["holderIdentity"])
        pods = (await cluster.list(POD, KNODEL)).items
        _kill(next(pod for pod in pods if name_of(pod) in holder))

    return kill


def knative(app: str) -> Kill:
    """All replicas of a part of Knative; the kubelet starts them again."""

    async def kill(cluster: Cluster) -> None:
        for pod in (await cluster.list(POD, KNATIVE, f"app={app}")).items:
            _kill(pod)

    return kill


def component(name: str) -> Kill:
    """A component of the testbed, which starts it again."""

    async def kill(_: Cluster) -> None:
        await asyncio.to_thread(testbed.kill, name)
        await asyncio.to_thread(testbed.restart, name)

    return kill


def both(*kills: Kill) -> Kill:
    """One after the other."""

    async def kill(cluster: Cluster) -> None:
        for one in kills:
            await one(cluster)

    return kill


def _kill(pod: Object) -> None:
    """The first process of the Pod's first container."""
    os.kill(processes_of(pod["status"]["containerStatuses"][0])[0], signal.SIGKILL)
