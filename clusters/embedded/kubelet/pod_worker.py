"""One Pod's life on the node: its container, its status in the cluster, and its end in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from enum import Enum, auto
from typing import Final

from clusters.base.errors import Conflict, KnodelError, NotFound, Unavailable
from clusters.base.objects import POD, Object, is_deleting, key_of, name_of, namespace_of, uid_of
from clusters.embedded.kubelet.container import Container
from clusters.embedded.kubelet.health import grace_of
from clusters.embedded.kubelet.launch import container_ports
from clusters.embedded.kubelet.node import HOST, MANAGER, Node
from clusters.embedded.kubelet.pod_status import (
    NODE_SHUTDOWN,
    ContainerState,
    Running,
    Terminated,
    Waiting,
    make_failed_status,
    make_status,
    process_patch,
    recorded_run,
    status_patch,
)
from clusters.embedded.kubelet.probes import parse_probe
from clusters.embedded.kubelet.process.errors import UnsupportedPod
from clusters.embedded.kubelet.process.process import first_of

log = logging.getLogger(__name__)

FORCED_GRACE: Final = 2.0  # s; of a Pod whose object is gone already, as Kubernetes' minimum
RETRY_AFTER: Final = 0.5  # s between tries to write to a cluster that does not answer
UNSUPPORTED: Final = "UnsupportedPodSpec"
FINAL_PHASES: Final = ("Succeeded", "Failed")
_DELETING: Final = "PodDeleting"


class Ending(Enum):
    """Why a Pod's processes are to end."""

    DELETED = auto()  # deletion was asked for: drain, end, then remove the object
    GONE = auto()  # the object is gone already: end
    SHUTDOWN = auto()  # the node goes down: drain, end, keep the object for its next start


class PodWorker:
    """Runs one Pod; told from outside what becomes of its object."""

    def __init__(self, node: Node, pod: Object) -> None:
        self.pod = pod
        self._node = node
        self._dirty = asyncio.Event()
        self._writing = asyncio.Lock()
        self._container = Container(node, pod, self._dirty.set)
        self._ending: Ending | None = None
        self._ends = asyncio.Event()
        self._gone = asyncio.Event()
        self._leaving = asyncio.Event()  # the node goes down, whatever else the Pod ends for
        self._shutdown_grace: float | None = None
        self._settled = asyncio.Event()
        self._recorded = recorded_run(pod)
        self._status: Object = pod.get("status") or {}  # as last written, which the informer learns later
        if is_deleting(pod):
            self._end(Ending.DELETED)

    @property
    def ending(self) -> Ending | None:
        """Why it ends; None while it is to live."""
        return self._ending

    def update(self, pod: Object) -> None:
        """The object changed."""
        self.pod = pod
        if is_deleting(pod):
            self._end(Ending.DELETED)

    def remove(self) -> None:
        """The object is gone, whoever deleted it. A termination under way is cut short."""
        self._gone.set()
        if self._ending is not None:
            self._container.kill()
        self._end(Ending.GONE)

    def shut_down(self, grace: float | None) -> None:
        """The node goes down; `grace` (s) bounds the Pod's own."""
        self._shutdown_grace = grace
        self._leaving.set()
        self._end(Ending.SHUTDOWN)

    def again(self) -> PodWorker:
        """A worker in its place, after it failed."""
        fresh = PodWorker(self._node, self.pod)
        if self._ending == Ending.GONE:
            fresh.remove()
        if self._leaving.is_set():
            fresh.shut_down(self._shutdown_grace)
        return fresh

    async def settled(self) -> None:
        """Return once the status in the cluster tells what was found of the Pod's process."""
        await self._settled.wait()

    async def run(self) -> None:
        """Live, and end. Returns when nothing of the Pod is left on the node (SHUTDOWN: but its folders)."""
        try:
            if (self.pod.get("status") or {}).get("phase") in FINAL_PHASES or not await self._is_admitted():
                self._settled.set()
                await self._ends.wait()
            else:
                await self._live()
            await self._finish()
        finally:
            self._settled.set()

    async def _is_admitted(self) -> bool:
        """Whether this node can run the Pod; if not, its status says so for good."""
        try:
            admit(self.pod)
        except UnsupportedPod as error:
            await self._patch(
                status_patch(self.pod, make_failed_status(self.pod, UNSUPPORTED, str(error), self._now()))
            )
            return False
        return True

    async def _live(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._container.live())
            writer = group.create_task(self._write_changes())
            await self._ends.wait()
            await self._take_out()
            writer.cancel()
            self._container.stop(self._grace())
        if self._ending == Ending.SHUTDOWN and self._phase() not in FINAL_PHASES:
            self._container.state = replace(
                self._container.state, state=Waiting(NODE_SHUTDOWN), started=False, ready=False
            )
            await self._write()

    async def _take_out(self) -> None:
        """Not ready, then drained: no request is to meet a process that ends."""
        if self._container.state.ready and not self._gone.is_set():
            await self._write()
            await first_of(self._drain(), self._gone.wait())

    async def _finish(self) -> None:
        """What is left to do once the processes have ended."""
        if self._ending == Ending.SHUTDOWN:
            return
        self._node.ports.release(self._container.ports.values())
        self._node.folders.remove_pod(self.pod)
        if self._ending == Ending.DELETED:
            await self._delete()

    async def _drain(self) -> None:
        """Wait until nothing routes here any more, for as long as a deletion may be held up by that."""
        try:
            async with asyncio.timeout(self._node.settings.drain_limit):
                await self._node.drain(self.pod)
        except TimeoutError:
            log.warning("pod %s: still routed to after %g s", key_of(self.pod), self._node.settings.drain_limit)
        except KnodelError as error:
            log.warning("pod %s: cannot be drained: %s", key_of(self.pod), error)
        except Exception:  # whatever is wrong with the data plane must not hold up a deletion
            log.exception("pod %s: its drain failed", key_of(self.pod))

    def _grace(self) -> float:
        if self._ending == Ending.GONE:
            return FORCED_GRACE
        grace = grace_of(self.pod)
        return grace if self._shutdown_grace is None else min(grace, self._shutdown_grace)

    def _end(self, ending: Ending) -> None:
        if self._ending is None or ending == Ending.GONE:
            self._ending = ending
        self._ends.set()

    async def _write_changes(self) -> None:
        await self._container.recovered.wait()
        if self._container.state != ContainerState():  # a new Pod's status is written once there is something to tell
            await self._write()
        self._settled.set()
        while True:
            await self._dirty.wait()
            await self._write()

    async def _write(self) -> None:
        """Bring the stored Pod to what is known now; where it runs first: nobody is to see an address without ports."""
        async with self._writing:
            self._dirty.clear()
            run = self._container.run
            if run is not None and run != self._recorded:
                if not await self._patch(process_patch(self.pod, self._node.name, run), status=False):
                    return
                self._recorded = run
            stored = self.pod | {"status": self._status}
            status = make_status(
                stored, self._container.state, phase=self._phase(), host_ip=HOST, now=self._now(), ending=self._why()
            )
            if status != self._status and await self._patch(status_patch(stored, status)):
                self._status = status

    async def _patch(self, patch: Object, status: bool = True) -> bool:
        """Write to the Pod; one that is gone needs no status. False: given up."""
        name, namespace = name_of(self.pod), namespace_of(self.pod)
        return await self._told(
            lambda: self._node.cluster.patch(
                POD, name, patch, namespace, manager=MANAGER, subresource="status" if status else ""
            )
        )

    async def _delete(self) -> None:
        name, namespace, uid = name_of(self.pod), namespace_of(self.pod), uid_of(self.pod)
        await self._told(lambda: self._node.cluster.delete(POD, name, namespace, uid=uid, grace_period=0))

    async def _told(self, write: Callable[[], Awaitable[object]]) -> bool:
        """Write again until the cluster answers; a node that goes down tries once: processes end, written or not."""
        while not self._gone.is_set():
            try:
                await write()
            except (NotFound, Conflict):
                return True
            except Unavailable as error:
                if self._leaving.is_set():
                    log.warning("pod %s: its end is not recorded: %s", key_of(self.pod), error)
                    return False
                await first_of(self._node.clock.sleep(error.retry_after or RETRY_AFTER), self._leaving.wait())
            else:
                return True
        return True

    def _phase(self) -> str:
        state = self._container.state
        ended = isinstance(state.state, Terminated) and not self._container.restarts
        if ended and isinstance(state.state, Terminated):
            return "Failed" if state.state.failed else "Succeeded"
        ran = isinstance(state.state, Running | Terminated) or state.last is not None
        return "Running" if ran else "Pending"

    def _why(self) -> str:
        """The reason for which the Pod ends, for its condition."""
        return {None: "", Ending.SHUTDOWN: NODE_SHUTDOWN}.get(self._ending, _DELETING)

    def _now(self) -> datetime:
        return self._node.clock.now()


def admit(pod: Object) -> None:
    """Raise UnsupportedPod for what this node cannot run."""
    try:
        _admit(pod["spec"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnsupportedPod(f"the spec is malformed: {error!r}") from error


def _admit(spec: Object) -> None:
    if len(spec.get("containers") or ()) != 1 or spec.get("initContainers"):
        raise UnsupportedPod("a Pod of the embedded cluster has exactly one container and no initContainers")
    container = spec["containers"][0]
    if not container.get("name"):
        raise UnsupportedPod("the container has no name")
    ports = {str(port): port for port in container_ports(container)}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        parse_probe(container, probe, ports)
