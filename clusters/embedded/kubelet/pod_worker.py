"""The worker of one Pod: run its container, write its status, and terminate it in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from enum import Enum, auto
from typing import Final

from clusters.base.errors import Conflict, KnodelError, NotFound, Unavailable
from clusters.base.objects import (
    DISRUPTION_TARGET,
    NVIDIA_GPU,
    POD,
    Object,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    uid_of,
    with_condition,
)
from clusters.embedded.kubelet.container import Container
from clusters.embedded.kubelet.container_config import container_ports, grace_period
from clusters.embedded.kubelet.gpus.assignment import WHOLE, request_of
from clusters.embedded.kubelet.node import HOST, MANAGER, Node
from clusters.embedded.kubelet.pod_status import (
    NODE_SHUTDOWN,
    ContainerState,
    Running,
    Terminated,
    Waiting,
    devices_patch,
    make_failed_status,
    make_status,
    make_unschedulable_status,
    process_patch,
    read_container_record,
    status_patch,
)
from clusters.embedded.kubelet.probes import parse_probe
from clusters.embedded.kubelet.process.errors import UnsupportedPod
from clusters.embedded.kubelet.process.process import first_of

log = logging.getLogger(__name__)

FORCED_GRACE: Final = 2.0  # s; for a Pod whose object was deleted by force, the minimum of Kubernetes
RETRY_DELAY: Final = 0.5  # s between attempts to write to an unavailable cluster
UNSUPPORTED: Final = "UnsupportedPodSpec"
FINAL_PHASES: Final = ("Succeeded", "Failed")


class Termination(Enum):
    """Why a Pod is terminated, and so what is done after its processes have ended."""

    DELETED = auto()  # deletion was requested: drain before, remove the object afterwards
    REMOVED = auto()  # the object was removed by force: do not drain
    SHUTDOWN = auto()  # the node shuts down: drain before, keep the object for the node's next start


class PodWorker:
    """Run one Pod. The kubelet notifies it of changes of the Pod's object."""

    def __init__(self, node: Node, pod: Object) -> None:
        self.pod = pod
        self._node = node
        self._dirty = asyncio.Event()
        self._writing = asyncio.Lock()
        self._container = Container(node, pod, self._dirty.set)
        self._termination: Termination | None = None
        self._terminating = asyncio.Event()
        self._removed = asyncio.Event()  # the object does not exist any more
        self._node_shutdown = asyncio.Event()  # also set when the Pod is terminated for another reason
        self._shutdown_grace: float | None = None
        self._synced = asyncio.Event()
        self._disruption = ("", "")  # reason and message of a deletion by the node
        self._recorded = read_container_record(pod)
        # As last written. No other client writes it, so the worker needs no state of the informer (`own_writes`).
        self._status: Object = pod.get("status") or {}
        if is_deleting(pod):
            self._terminate(Termination.DELETED)

    def update(self, pod: Object) -> None:
        """Handle a change of the object."""
        self.pod = pod
        if is_deleting(pod):
            self._terminate(Termination.DELETED)

    def remove(self) -> None:
        """Handle the removal of the object. A running termination is cut short."""
        self._removed.set()
        if self._termination is not None:
            self._container.kill()
        self._terminate(Termination.REMOVED)

    async def disrupt(self, reason: str, message: str) -> None:
        """Write why the node deletes the Pod next."""
        self._disruption = (reason, message)
        await self._write()

    def shut_down(self, grace: float | None) -> None:
        """Terminate the Pod because the node shuts down. `grace` (s) is an upper limit for its grace period."""
        self._shutdown_grace = grace
        self._node_shutdown.set()
        self._terminate(Termination.SHUTDOWN)

    def replacement(self) -> PodWorker:
        """Return a new worker for the Pod after this one failed."""
        fresh = PodWorker(self._node, self.pod)
        if self._termination == Termination.REMOVED:
            fresh.remove()
        if self._node_shutdown.is_set():
            fresh.shut_down(self._shutdown_grace)
        return fresh

    async def synced(self) -> None:
        """Wait until the stored status shows whether the process of an earlier kubelet still runs."""
        await self._synced.wait()

    async def run(self) -> None:
        """Run and terminate the Pod. Returns when it has left no processes and, except at a shutdown, no files."""
        try:
            is_final = (self.pod.get("status") or {}).get("phase") in FINAL_PHASES
            if is_final or not await self._admit() or not await self._have_devices():
                self._synced.set()
                await self._terminating.wait()
            else:
                await self._run_container()
            if self._termination == Termination.SHUTDOWN:
                return
            self._node.ports.release(self._container.ports.values())
            self._node.devices.release(uid_of(self.pod))
            self._node.folders.remove_pod(self.pod)
            if self._termination == Termination.DELETED:
                name, namespace, uid = name_of(self.pod), namespace_of(self.pod), uid_of(self.pod)
                await self._retry(lambda: self._node.cluster.delete(POD, name, namespace, uid=uid, grace_period=0))
        finally:
            self._synced.set()

    async def _admit(self) -> bool:
        """Return whether the node supports the Pod. Otherwise set its status to Failed."""
        try:
            admit(self.pod)
        except UnsupportedPod as error:
            await self._patch(
                status_patch(self.pod, make_failed_status(self.pod, UNSUPPORTED, str(error), self._now()))
            )
            return False
        return True

    async def _have_devices(self) -> bool:
        """Wait until the Pod has the GPUs that it requests, and record them. Return False if it is terminated first."""
        devices, uid = self._node.devices, uid_of(self.pod)
        if self._node.folders.read_record(uid) is not None:  # its process was started with its GPUs
            return True
        request = devices.request(self.pod)
        if request is None:
            return await self._remark_unknown_devices()
        granted = devices.take(self.pod, request)
        if not granted.is_set():
            message = devices.why_waiting(request)
            status = make_unschedulable_status(self.pod, message, self._now())
            if await self._patch(status_patch(self.pod, status)):
                self._status = status
            await self._node.record(self.pod, "Warning", "FailedScheduling", message)
            self._synced.set()
            await first_of(granted.wait(), self._terminating.wait())
        held = devices.assignment(uid)
        if self._terminating.is_set() or held is None:
            devices.release(uid)
            return False
        isolated = held.share == WHOLE or self._node.mps.available()
        if not isolated:
            message = "nvidia-cuda-mps-control is not on the PATH, so nothing limits what the Pod uses of its GPU"
            await self._node.record(self.pod, "Warning", "NoGPUIsolation", message)
        record = held.to_text(isolated=isolated)
        return await self._patch(devices_patch(self.pod, self._node.name, record), status=False)

    async def _remark_unknown_devices(self) -> bool:
        if request_of(self.pod).count and not self._node.devices.known:
            message = f"no {NVIDIA_GPU} of this machine is known, so none is assigned: its models share what there is"
            await self._node.record(self.pod, "Normal", "GPUsNotAssigned", message)
        return True

    async def _run_container(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._container.run())
            writer = group.create_task(self._write_changes())
            await self._terminating.wait()
            if self._container.state.ready and not self._removed.is_set():
                # Not ready first, then drained: no request must reach a process that ends.
                await self._write()
                await first_of(self._drain(), self._removed.wait())
            writer.cancel()
            grace = FORCED_GRACE if self._termination == Termination.REMOVED else grace_period(self.pod)
            if self._shutdown_grace is not None and self._termination != Termination.REMOVED:
                grace = min(grace, self._shutdown_grace)
            self._container.stop(grace)
        if self._termination == Termination.SHUTDOWN and self._phase() not in FINAL_PHASES:
            self._container.state = replace(
                self._container.state, state=Waiting(NODE_SHUTDOWN), started=False, ready=False
            )
            await self._write()

    async def _drain(self) -> None:
        """Wait until the data plane sends the Pod no more requests, at most `drain_limit` seconds."""
        try:
            async with asyncio.timeout(self._node.settings.drain_limit):
                await self._node.drain(self.pod)
        except TimeoutError:
            log.warning("pod %s: not drained within %g s", key_of(self.pod), self._node.settings.drain_limit)
        except KnodelError as error:
            log.warning("pod %s: cannot drain it: %s", key_of(self.pod), error)
        except Exception:  # an error of the data plane must not block a deletion
            log.exception("pod %s: cannot drain it", key_of(self.pod))

    def _terminate(self, termination: Termination) -> None:
        if self._termination is None or termination == Termination.REMOVED:
            self._termination = termination
        self._terminating.set()

    async def _write_changes(self) -> None:
        await self._container.recovered.wait()
        if self._container.state != ContainerState():  # the status of a new Pod is written with its first change
            await self._write()
        self._synced.set()
        while True:
            await self._dirty.wait()
            await self._write()

    async def _write(self) -> None:
        """Write the Pod's process and status if they changed.

        The process goes first, so that a Pod with an address always has its ports.
        """
        async with self._writing:
            self._dirty.clear()
            record = self._container.record
            if record is not None and record != self._recorded:
                if not await self._patch(process_patch(self.pod, self._node.name, record), status=False):
                    return
                self._recorded = record
            reason = "" if self._termination is None else "PodDeleting"
            if self._termination == Termination.SHUTDOWN:
                reason = NODE_SHUTDOWN
            stored = self.pod | {"status": self._status}
            status = make_status(
                stored,
                self._container.state,
                phase=self._phase(),
                host_ip=HOST,
                now=self._now(),
                termination_reason=reason,
            )
            if self._disruption[0]:
                conditions = with_condition(
                    status["conditions"], DISRUPTION_TARGET, "True", self._now(), *self._disruption
                )
                status["conditions"] = conditions
            if status != self._status and await self._patch(status_patch(stored, status)):
                self._status = status
            if status["phase"] in FINAL_PHASES:
                self._node.devices.release(uid_of(self.pod))

    async def _patch(self, patch: Object, status: bool = True) -> bool:
        """Patch the Pod or its status. Return False when the write was given up."""
        name, namespace = name_of(self.pod), namespace_of(self.pod)
        return await self._retry(
            lambda: self._node.cluster.patch(
                POD, name, patch, namespace, manager=MANAGER, subresource="status" if status else ""
            )
        )

    async def _retry(self, write: Callable[[], Awaitable[object]]) -> bool:
        """Retry a write until the cluster is available. Return False when it was given up.

        During a node shutdown there is one attempt, so that the processes end even if the cluster cannot be written.
        """
        while not self._removed.is_set():
            try:
                await write()
            except (NotFound, Conflict):
                return True
            except Unavailable as error:
                if self._node_shutdown.is_set():
                    log.warning("pod %s: cannot record its termination: %s", key_of(self.pod), error)
                    return False
                delay = error.retry_after or RETRY_DELAY
                await first_of(self._node.clock.sleep(delay), self._node_shutdown.wait())
            else:
                return True
        return True

    def _phase(self) -> str:
        state = self._container.state
        if isinstance(state.state, Terminated) and not self._container.restarts:
            return "Failed" if state.state.failed else "Succeeded"
        has_run = isinstance(state.state, Running | Terminated) or state.last is not None
        return "Running" if has_run else "Pending"

    def _now(self) -> datetime:
        return self._node.clock.now()


def admit(pod: Object) -> None:
    """Check that the node supports the Pod's spec. Raises UnsupportedPod."""
    try:
        spec = pod["spec"]
        if len(spec.get("containers") or ()) != 1 or spec.get("initContainers"):
            raise UnsupportedPod("a Pod of the embedded cluster must have exactly one container and no initContainers")
        container = spec["containers"][0]
        if not container.get("name"):
            raise UnsupportedPod("invalid spec: the container has no name")
        ports = {str(port): port for port in container_ports(container)}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            parse_probe(container, probe, ports)
        request_of(pod)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnsupportedPod(f"invalid spec: {error!r}") from error
