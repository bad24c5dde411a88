"""The kubelet of the embedded cluster: run each stored Pod as a process of this machine.

It watches Pods and runs a worker for each. It may be killed at any time: the processes continue, and the next kubelet
of the same state folder adopts them or reads their exit status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError
from clusters.base.objects import (
    CONFIG_MAP,
    GPU_LOST,
    NODE,
    POD,
    Object,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from clusters.devices.machine import DeviceSource, NoDevices
from clusters.embedded.kubelet.gpus.device_manager import DeviceManager
from clusters.embedded.kubelet.gpus.mps import MpsDaemons
from clusters.embedded.kubelet.gpus.node_object import make_node, make_node_status
from clusters.embedded.kubelet.leftovers import kill_orphans
from clusters.embedded.kubelet.log_rotation import LogRotator
from clusters.embedded.kubelet.node import HOST, MANAGER, Drain, KubeletSettings, Node, config_map_values
from clusters.embedded.kubelet.pod_worker import PodWorker
from clusters.embedded.kubelet.ports import PortAllocator
from clusters.embedded.kubelet.process.folders import Folders
from clusters.embedded.kubelet.process.images import ContainerImage
from clusters.embedded.kubelet.process.mounts import update_config_map
from clusters.embedded.kubelet.process.pod_runtime import PodRuntime
from clusters.embedded.kubelet.process.zygotes import ZygoteRuntime
from clusters.gateway.token import GatewayTokens
from clusters.net.endpoints import real_ports
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder

log = logging.getLogger(__name__)

RETRY_DELAY: Final = 1.0  # s until a worker is replaced after an unexpected error


class Kubelet:
    """Run the Pods of one node. Only one kubelet may run for a state folder.

    `images` maps image names to programs. `drain` waits until the data plane sends a Pod no more requests. `devices` is
    where the node's GPUs are read from.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        *,
        state_dir: Path,
        images: Mapping[str, ContainerImage],
        drain: Drain,
        tokens: GatewayTokens,
        clock: Clock,
        node_name: str = "embedded",
        settings: KubeletSettings | None = None,
        devices: DeviceSource | None = None,
    ) -> None:
        self._pods = informers[POD]
        self._config_maps = informers[CONFIG_MAP]
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
            settings=settings or KubeletSettings(),
            tokens=tokens,
            devices=DeviceManager(devices or NoDevices(), clock),
            mps=MpsDaemons(self._folders, clock),
        )

    async def run(self) -> None:
        """Run Pods until cancelled. The processes continue after that; `stop_all` stops them."""
        self._folders.prepare()
        await self._pods.synced()
        await self._config_maps.synced()
        await self._clean_up()
        await self._node.devices.start(self._pods)
        await self._write_node()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._pods.subscribe(self._on_change)
                self._config_maps.subscribe(self._on_config_map)
                self._started.set()
                group.create_task(self._node.devices.watch(), name="GPUs")
                group.create_task(self._follow_devices(), name="Node")
                await LogRotator(self._folders.logs, self._clock).run()
        finally:
            self._group = None
            self._node.ports.close()

    async def synced(self) -> None:
        """Wait until the status of every Pod found at the start is up to date."""
        await self._started.wait()
        for worker in list(self._workers.values()):
            await worker.synced()

    async def stop_all(self, grace: float | None = None) -> None:
        """Drain and stop all Pods' processes and the zygotes. The next kubelet starts the Pods again.

        `grace` (s) is an upper limit for the Pods' terminationGracePeriodSeconds. `run` must be running.
        """
        self._shutting_down = True
        for worker in self._workers.values():
            worker.shut_down(grace)
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks)
        await self._zygotes.shut_down()
        await self._node.mps.shut_down()

    async def _clean_up(self) -> None:
        """Reserve the ports of known Pods, kill orphaned processes and remove the folders of deleted Pods."""
        known = {uid_of(pod) for pod in self._pods}
        for pod in self._pods:
            self._node.ports.reserve(real_ports(pod).values())
        for orphan in await asyncio.to_thread(kill_orphans, self._folders, known):
            log.warning("killed %s: it does not belong to a Pod", orphan)
        await asyncio.to_thread(self._folders.remove_all_but, known)

    async def _follow_devices(self) -> None:
        """Show the state of the GPUs on the Node, and end the Pods whose GPUs have failed."""
        while True:
            await self._node.devices.changed()
            await self._write_node()
            for uid, worker in list(self._workers.items()):
                if (fault := self._node.devices.fault_of(uid)) and not is_deleting(worker.pod):
                    await self._end_pod(worker, fault)

    async def _end_pod(self, worker: PodWorker, fault: str) -> None:
        """Delete a Pod whose GPU has failed. Its controller creates another one."""
        pod = worker.pod
        message = f"the replica ends because its GPU has failed: {fault}: `nvidia-smi` shows its state"
        await worker.disrupt(GPU_LOST, message)
        await self._node.record(pod, "Warning", GPU_LOST, message)
        try:
            await self._node.cluster.delete(POD, name_of(pod), namespace_of(pod), uid=uid_of(pod))
        except ClusterError as error:
            log.warning("pod %s: its GPU has failed, and it cannot be deleted: %s", key_of(pod), error)

    async def _write_node(self) -> None:
        """Write the Node object. One that cannot be written is logged: no Pod of this node needs it."""
        devices, cluster = self._node.devices, self._node.cluster
        node = make_node(self._node.name, devices.machine)
        try:
            stored = await cluster.apply(NODE, node, manager=MANAGER, force=True)
            former = stored.get("status") or {}
            status = make_node_status(former, devices.machine, devices.lost, devices.held_uuids(), self._clock.now())
            if status != former:
                absent = {name: None for name in former if name not in status}
                await cluster.patch(
                    NODE, self._node.name, {"status": absent | status}, manager=MANAGER, subresource="status"
                )
        except ClusterError as error:
            log.warning("node %s: cannot be written: %s", self._node.name, error)

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
            return
        node_name = (after.get("spec") or {}).get("nodeName") or self._node.name
        if not self._shutting_down and node_name == self._node.name:
            self._start_worker(after)

    def _on_config_map(self, _: Object | None, after: Object | None) -> None:
        """Update the files of Pods that mount a changed ConfigMap. Those of a deleted one stay, as in Kubernetes."""
        if after is None:
            return
        values = config_map_values(after)
        for uid, worker in self._workers.items():
            if namespace_of(worker.pod) == namespace_of(after):
                try:
                    update_config_map(worker.pod, self._folders.volumes(uid), name_of(after), values)
                except OSError as error:
                    log.warning("pod %s: ConfigMap %s is not updated: %s", key_of(worker.pod), name_of(after), error)

    def _start_worker(self, pod: Object) -> None:
        if self._group is None:
            return
        uid = uid_of(pod)
        try:
            self._workers[uid] = PodWorker(self._node, pod)
        except Exception:  # an error here would stop the informer's notifications about other Pods
            log.exception("pod %s: ignored because it is malformed", key_of(pod))
            return
        self._tasks[uid] = self._group.create_task(self._run_worker(uid), name=f"pod {key_of(pod)}")

    async def _run_worker(self, uid: str) -> None:
        """Run a worker, and replace it after an unexpected error so that other Pods are not affected."""
        try:
            while True:
                worker = self._workers[uid]
                try:
                    await worker.run()
                    return
                except Exception:
                    log.exception("pod %s: worker failed, replacing it", key_of(worker.pod))
                    await self._clock.sleep(RETRY_DELAY)
                    self._workers[uid] = worker.replacement()
        finally:
            self._workers.pop(uid, None)
            self._tasks.pop(uid, None)
