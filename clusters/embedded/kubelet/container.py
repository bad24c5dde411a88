"""The container of a Pod: start, observe, probe and restart its process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from clusters.base.backoff import Backoff
from clusters.base.objects import Object, key_of, uid_of
from clusters.embedded.kubelet.container_config import (
    DEFAULT_GRACE_PERIOD,
    container_ports,
    make_container_config,
)
from clusters.embedded.kubelet.node import Node
from clusters.embedded.kubelet.pod_status import (
    CRASH_LOOP,
    CREATING,
    NODE_SHUTDOWN,
    ContainerState,
    Running,
    Terminated,
    Waiting,
    read_container_record,
    read_container_state,
    terminated_state,
)
from clusters.embedded.kubelet.probe_manager import ProbeManager, ProbeState
from clusters.embedded.kubelet.process.errors import CreateContainerError, ImageNotFound, RunContainerError
from clusters.embedded.kubelet.process.folders import ContainerRecord
from clusters.embedded.kubelet.process.process import ExitStatus, Process, first_of, read_oom_kills, terminate
from clusters.net.endpoints import real_ports

START_ERROR: Final = 128  # exit code that container runtimes report for a command that cannot be started
IMAGE_BACKOFF: Final = "ImagePullBackOff"
"""Reason of a container whose image does not exist, from the second attempt on."""
HEALTHY_AFTER: Final = 600.0  # s; a run this long resets the back-off, as in Kubernetes (2 × MaxContainerBackOff)


class RestartBackoff:
    """The kubelet's CrashLoopBackOff: delays 0, `first`, 2·`first`, 4·`first` … `largest` before restarts.

    A run of `HEALTHY_AFTER` seconds resets the delay to 0.
    """

    def __init__(self, first: float, largest: float) -> None:
        self._backoff = Backoff(first, largest)
        self._short_runs = 0  # consecutive runs, each shorter than `HEALTHY_AFTER`

    def delay_after(self, run: float) -> float:
        """Return the seconds to wait after a run of `run` seconds has ended."""
        if run >= HEALTHY_AFTER:
            self._short_runs = 0
        delay = self._backoff.delay(self._short_runs - 1) if self._short_runs else 0.0
        self._short_runs += 1
        return delay


class Container:
    """Run one container from `run` until `stop`.

    `state` and `record` are its current state and process. `changed` is called after each change of them.
    `recovered` is set when the process of an earlier kubelet has been adopted or found to have ended.
    """

    def __init__(self, node: Node, pod: Object, changed: Callable[[], None]) -> None:
        self.state: ContainerState = read_container_state(pod)
        self.record: ContainerRecord | None = None
        self.ports = real_ports(pod)
        self.recovered = asyncio.Event()
        self._node = node
        self._pod = pod
        self._uid = uid_of(pod)
        self._spec: Object = next(iter(pod["spec"].get("containers") or ()), {})
        self._changed = changed
        self._process: Process | None = None
        self._backoff = RestartBackoff(node.settings.first_backoff, node.settings.largest_backoff)
        self._grace = DEFAULT_GRACE_PERIOD
        self._stopping = asyncio.Event()
        self._oom_kills = 0

    def stop(self, grace: float) -> None:
        """Terminate the process: SIGTERM, then SIGKILL after `grace` seconds. `run` returns after its exit."""
        self._grace = grace
        self._stopping.set()

    def kill(self) -> None:
        """Kill the process without a grace period."""
        self.stop(0.0)
        if self._process is not None:
            self._process.kill()

    async def run(self) -> None:
        """Adopt or start the process, and restart it according to the restart policy, until `stop`."""
        process = await self._recover()
        self.recovered.set()
        if process is not None:
            await self._supervise(process)
        while not self._stopping.is_set() and self.restarts:
            await self._back_off()
            process = None if self._stopping.is_set() else await self._start()
            if process is not None:
                await self._supervise(process)

    async def _recover(self) -> Process | None:
        """Adopt the process that an earlier kubelet started, or set the state to its exit status."""
        was_running = isinstance(self.state.state, Running)
        folders = self._node.folders
        record = folders.read_record(self._uid) or (read_container_record(self._pod) if was_running else None)
        record = None if record is None else folders.without_foreign(record)
        if record is None:
            if self.state.state == Waiting(NODE_SHUTDOWN):
                self.state = replace(self.state, state=CREATING)
            return None
        self.record = record
        self.ports = record.ports or self.ports
        process = self._node.runtime.adopt(record)
        if process is not None:
            self._node.ports.join(self.ports.values())
        if not was_running:
            self._set(state=Running(self._node.clock.now()), started=False, ready=False)
        if process is None:
            self._set_terminated(await self._node.runtime.read_exit_status(record))
        return process

    async def _start(self) -> Process | None:
        """Start the process. Return None when the start failed, which sets the state, or when `stop` came first."""
        try:
            self._node.folders.prepare_pod(self._pod)
            self._node.folders.remove_record(self._uid)
            self._node.folders.keep_previous_log(self._pod, str(self._spec["name"]))
            self.ports = self._node.ports.allocate(container_ports(self._spec), self.ports)
            with self._node.ports.listening(self.ports.values()) as listeners:
                config = await make_container_config(self._node, self._pod, self._spec, self.ports, listeners)
                if self._stopping.is_set():  # e.g. its ReplicaSet adopted a running Pod meanwhile
                    return None
                started = await self._node.runtime.start(config)
        except RunContainerError as error:
            now = self._node.clock.now()
            self._set(state=Terminated(START_ERROR, "StartError", now, now, message=str(error)), ready=False)
            return None
        except CreateContainerError as error:
            await self._set_waiting(error)
            return None
        except OSError as error:
            folder = self._node.folders.scratch(self._uid)
            await self._set_waiting(CreateContainerError(f"cannot prepare the folder {folder}: {error}"))
            return None
        self.record = started.record
        self._set(state=Running(self._node.clock.now()), started=False, ready=False)
        return started.process

    async def _supervise(self, process: Process) -> None:
        """Probe the process until its exit, and terminate it on `stop`."""

        async def terminate_on_stop(probing: asyncio.Task[None]) -> None:
            await self._stopping.wait()
            probing.cancel()
            await terminate(process, self._grace, self._node.clock)

        self._process = process
        self._oom_kills = read_oom_kills()
        try:
            probes = ProbeManager(
                self._node,
                self._pod,
                process,
                self.ports,
                ProbeState(self.state.started, self.state.ready),
                lambda now: self._set(started=now.started, ready=now.ready),
            )
            async with asyncio.TaskGroup() as group:
                probing = group.create_task(probes.run())
                terminating = group.create_task(terminate_on_stop(probing))
                status = await process.wait()
                probing.cancel()
                terminating.cancel()
        finally:
            process.detach()
        self._process = None
        self._set_terminated(status)

    def _set_terminated(self, status: ExitStatus) -> None:
        now, state = self._node.clock.now(), self.state.state
        message = self._node.folders.termination_message(self._uid)
        self._node.folders.remove_record(self._uid)
        terminated = terminated_state(
            status,
            started_at=state.started_at if isinstance(state, Running) else now,
            finished_at=now,
            message=message,
            out_of_memory=status.signal == signal.SIGKILL and read_oom_kills() > self._oom_kills,
        )
        self._set(state=terminated, started=False, ready=False)

    @property
    def restarts(self) -> bool:
        """Whether the restart policy requires a start in the current state."""
        policy = self._pod["spec"].get("restartPolicy") or "Always"
        state = self.state.state
        return policy == "Always" or not isinstance(state, Terminated) or (policy == "OnFailure" and state.failed)

    async def _back_off(self) -> None:
        """Wait before the next start. The first start is immediate."""
        state = self.state.state
        if state == CREATING:
            return
        run = (state.finished_at - state.started_at).total_seconds() if isinstance(state, Terminated) else 0.0
        delay = self._backoff.delay_after(run)
        if isinstance(state, Terminated):
            self.state = replace(self.state, last=state, restarts=self.state.restarts + 1)
            if delay:
                message = f"back-off {delay:g}s restarting container {self._spec['name']} of pod {key_of(self._pod)}"
                self._set(state=Waiting(CRASH_LOOP, message))
                await self._node.record(self._pod, "Warning", "BackOff", message)
        await first_of(self._stopping.wait(), self._node.clock.sleep(delay))

    async def _set_waiting(self, error: CreateContainerError) -> None:
        former = self.state.state
        again = isinstance(former, Waiting) and former.reason in (ImageNotFound.reason, IMAGE_BACKOFF)
        reason = IMAGE_BACKOFF if again and isinstance(error, ImageNotFound) else error.reason
        waiting = Waiting(reason, str(error))
        if waiting != former:
            self._set(state=waiting, ready=False)
            await self._node.record(self._pod, "Warning", "Failed", str(error))

    def _set(
        self,
        *,
        state: Waiting | Running | Terminated | None = None,
        started: bool | None = None,
        ready: bool | None = None,
    ) -> None:
        fresh = replace(
            self.state,
            state=self.state.state if state is None else state,
            started=self.state.started if started is None else started,
            ready=self.state.ready if ready is None else ready,
        )
        if fresh != self.state:
            self.state = fresh
            self._changed()
