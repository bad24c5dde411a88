"""The kubelet of the embedded cluster: every Pod in the store becomes a process of this machine.

It watches Pods and gives each a worker. It may end at any moment: the processes go on, and the next kubelet of the same
state folder adopts them, or finds how they ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.objects import POD, Object, key_of, uid_of
from clusters.embedded.kubelet.leftovers import end_unclaimed
from clusters.embedded.kubelet.logs import LogRotator
from clusters.embedded.kubelet.node import HOST, MANAGER, Drain, Node, Settings
from clusters.embedded.kubelet.pod_worker import PodWorker
from clusters.embedded.kubelet.ports import PortAllocator
from clusters.embedded.kubelet.process.folders import Folders
from clusters.embedded.kubelet.process.images import Image
from clusters.embedded.kubelet.process.pod_runtime import PodRuntime
from clusters.embedded.kubelet.process.zygotes import ZygoteRuntime
from clusters.gateway.token import GatewayTokens
from clusters.net.endpoints import real_ports
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder

log = logging.getLogger(__name__)

RETRY_AFTER: Final = 1.0  # s until a Pod's worker that failed unexpectedly starts anew


class Kubelet:
    """Runs the Pods of one node. One at a time for each state folder."""

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        *,
        state_dir: Path,
        images: Mapping[str, Image],
        drain: Drain,
        tokens: GatewayTokens,
        clock: Clock,
        node_name: str = "embedded",
        settings: Settings | None = None,
    ) -> None:
        self._pods = informers[POD]
        self._clock = clock
        self._folders = Folders(state_dir)
        self._zygotes = ZygoteRuntime(self._folders, clock)
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._shutting_down = False
        self._started = asyncio.Event()
        self._node = Node(
            name=node_name,
            cluster=cluster,
            clock=clock,
            folders=self._folders,
            images=images,
            ports=PortAllocator(HOST),
            runtime=PodRuntime(self._zygotes),
            drain=drain,
            recorder=Recorder(cluster, MANAGER, clock),
            settings=settings or Settings(),
            tokens=tokens,
        )

    async def run(self) -> None:
        """Run Pods until cancelled. Their processes outlive that: see `stop_all`."""
        self._folders.prepare()
        await self._pods.synced()
        await self._clean_up()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._pods.subscribe(self._on_change)
                self._started.set()
                await LogRotator(self._folders.logs, self._clock).run()
        finally:
            self._group = None
            self._node.ports.close()

    async def settled(self) -> None:
        """Return once the status of every Pod found at the start tells the truth about its process again."""
        await self._started.wait()
        for worker in list(self._workers.values()):
            await worker.settled()

    async def stop_all(self, grace: float | None = None) -> None:
        """End all Pods' processes, drained and in order, and the zygotes; the Pods start again with the next kubelet.

        `grace` (s) bounds the Pods' own terminationGracePeriodSeconds. Needs `run` to be running.
        """
        self._shutting_down = True
        for worker in self._workers.values():
            worker.shut_down(grace)
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks)
        await self._zygotes.shut_down()

    async def _clean_up(self) -> None:
        """Take stock before the first worker starts: ports that are taken, processes and folders that nobody claims."""
        claimed = {uid_of(pod) for pod in self._pods}
        for pod in self._pods:
            self._node.ports.reserve(real_ports(pod).values())
        for leftover in await asyncio.to_thread(end_unclaimed, self._folders, claimed):
            log.warning("ended %s: no Pod claims it", leftover)
        await asyncio.to_thread(self._folders.remove_all_but, claimed)

    def _on_change(self, before: Object | None, after: Object | None) -> None:
        if before is not None and (after is None or uid_of(after) != uid_of(before)):
            worker = self._workers.get(uid_of(before))
            if worker is not None:
                worker.remove()
        if after is None:
            return
        worker = self._workers.get(uid_of(after))
        if worker is not None:
            worker.update(after)
        elif self._is_ours(after):
            self._begin(after)

    def _is_ours(self, pod: Object) -> bool:
        return (
            not self._shutting_down and ((pod.get("spec") or {}).get("nodeName") or self._node.name) == self._node.name
        )

    def _begin(self, pod: Object) -> None:
        if self._group is None:
            return
        uid = uid_of(pod)
        try:
            self._workers[uid] = PodWorker(self._node, pod)
        except Exception:  # this runs in the informer, which has other Pods to tell of
            log.exception("pod %s: malformed, left alone", key_of(pod))
            return
        self._tasks[uid] = self._group.create_task(self._live(uid), name=f"pod {key_of(pod)}")

    async def _live(self, uid: str) -> None:
        """The frame around a worker: one poison Pod must not stop the others."""
        try:
            while True:
                worker = self._workers[uid]
                try:
                    await worker.run()
                    return
                except Exception:
                    log.exception("pod %s: its worker failed, starting it anew", key_of(worker.pod))
                    await self._clock.sleep(RETRY_AFTER)
                    self._workers[uid] = worker.again()
        finally:
            self._workers.pop(uid, None)
            self._tasks.pop(uid, None)
