"""The container of a Pod: its process started, watched, probed and started again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Final

from clusters.base.objects import Object, key_of, uid_of
from clusters.embedded.kubelet.backoff import RestartBackOff
from clusters.embedded.kubelet.health import DEFAULT_GRACE, Health, Known
from clusters.embedded.kubelet.launch import container_ports, make_launch
from clusters.embedded.kubelet.node import Node
from clusters.embedded.kubelet.pod_status import (
    CRASH_LOOP,
    CREATING,
    NODE_SHUTDOWN,
    ContainerState,
    Running,
    Terminated,
    Waiting,
    read_container,
    recorded_run,
    terminated,
)
from clusters.embedded.kubelet.process.errors import CannotStart, StartFailed, UnknownImage
from clusters.embedded.kubelet.process.folders import Run
from clusters.embedded.kubelet.process.process import Exit, Process, first_of, oom_kills, terminate
from clusters.net.endpoints import real_ports

START_ERROR: Final = 128  # exit code of a command that could not be started, as container runtimes report it
IMAGE_BACKOFF: Final = "ImagePullBackOff"


class Container:
    """One container, from `live` to its return; `state` and `run` are what others may read, `changed` tells them."""

    def __init__(self, node: Node, pod: Object, changed: Callable[[], None]) -> None:
        self.state: ContainerState = read_container(pod)
        self.run: Run | None = None
        self.ports = real_ports(pod)
        self.recovered = asyncio.Event()
        self._node = node
        self._pod = pod
        self._uid = uid_of(pod)
        self._spec: Object = next(iter(pod["spec"].get("containers") or ()), {})
        self._changed = changed
        self._process: Process | None = None
        self._backoff = RestartBackOff(node.settings.first_backoff, node.settings.largest_backoff)
        self._grace = DEFAULT_GRACE
        self._stopping = asyncio.Event()
        self._oom_kills = 0

    @property
    def running(self) -> bool:
        """Whether it has a process."""
        return self._process is not None and self._process.running

    def stop(self, grace: float) -> None:
        """End it: SIGTERM, and SIGKILL `grace` seconds later. `live` returns once it has ended."""
        self._grace = grace
        self._stopping.set()

    def kill(self) -> None:
        """End it at once."""
        self.stop(0.0)
        if self._process is not None:
            self._process.kill()

    async def live(self) -> None:
        """Adopt or start the process, and start it again as the restart policy says, until `stop`."""
        process = await self._recover()
        self.recovered.set()
        if process is not None:
            await self._attend(process)
        while not self._stopping.is_set() and self.restarts:
            await self._back_off()
            process = None if self._stopping.is_set() else await self._start()
            if process is not None:
                await self._attend(process)

    async def _recover(self) -> Process | None:
        """Go on where an earlier kubelet stood: with the process that it started, or with that one's end."""
        was_running = isinstance(self.state.state, Running)
        folders = self._node.folders
        run = folders.read_run(self._uid) or (recorded_run(self._pod) if was_running else None)
        run = None if run is None else folders.own(run)
        if run is None:
            if self.state.state == Waiting(NODE_SHUTDOWN):
                self.state = replace(self.state, state=CREATING)
            return None
        self.run = run
        self.ports = run.ports or self.ports
        process = self._node.runtime.adopt(run)
        if process is not None:
            self._node.ports.join(self.ports.values())
        if not was_running:
            self._run_since_now()
        if process is None:
            self._ended(await self._node.runtime.exit_of(run))
        return process

    async def _start(self) -> Process | None:
        """Start the process; None when that failed, which the state tells then, or when it is to end already."""
        try:
            self._node.folders.prepare_pod(self._pod)
            self._node.folders.forget_last_run(self._uid)
            self._node.folders.keep_previous_log(self._pod, str(self._spec["name"]))
            self.ports = self._node.ports.allocate(container_ports(self._spec), self.ports)
            with self._node.ports.listening(self.ports.values()) as listeners:
                launch = await make_launch(self._node, self._pod, self._spec, self.ports, listeners)
                if self._stopping.is_set():  # as a Pod is whose ReplicaSet adopted a running one in its place
                    return None
                started = await self._node.runtime.start(launch)
        except StartFailed as error:
            now = self._node.clock.now()
            self._set(state=Terminated(START_ERROR, "StartError", now, now, message=str(error)), ready=False)
            return None
        except CannotStart as error:
            await self._cannot_start(error)
            return None
        except OSError as error:
            folder = self._node.folders.scratch(self._uid)
            await self._cannot_start(CannotStart(f"cannot prepare the folder {folder}: {error}"))
            return None
        self.run = started.run
        self._run_since_now()
        return started.process

    async def _attend(self, process: Process) -> None:
        """Probe it, end it when asked; return once it has ended."""
        self._process = process
        self._oom_kills = oom_kills()
        try:
            async with asyncio.TaskGroup() as group:
                monitor = group.create_task(self._health(process).follow())
                ender = group.create_task(self._end_when_asked(process, monitor))
                end = await process.wait()
                monitor.cancel()
                ender.cancel()
        finally:
            process.detach()
        self._process = None
        self._ended(end)

    async def _end_when_asked(self, process: Process, monitor: asyncio.Task[None]) -> None:
        await self._stopping.wait()
        monitor.cancel()
        await terminate(process, self._grace, self._node.clock)

    def _health(self, process: Process) -> Health:
        known = Known(self.state.started, self.state.ready)
        return Health(
            self._node,
            self._pod,
            process,
            self.ports,
            known,
            lambda now: self._set(started=now.started, ready=now.ready),
        )

    def _ended(self, exit: Exit) -> None:
        message = self._node.folders.termination_message(self._uid)
        self._node.folders.forget_last_run(self._uid)
        end = terminated(
            exit,
            started_at=self._started_at(),
            finished_at=self._node.clock.now(),
            message=message,
            out_of_memory=exit.signal == signal.SIGKILL and oom_kills() > self._oom_kills,
        )
        self._set(state=end, started=False, ready=False)

    @property
    def restarts(self) -> bool:
        """Whether the restart policy wants another start, now that it has ended."""
        policy = self._pod["spec"].get("restartPolicy") or "Always"
        end = self.state.state
        return policy == "Always" or not isinstance(end, Terminated) or (policy == "OnFailure" and end.failed)

    async def _back_off(self) -> None:
        """Wait until the next start is due; the first one is at once."""
        end = self.state.state
        if end == CREATING:
            return
        ran = (end.finished_at - end.started_at).total_seconds() if isinstance(end, Terminated) else 0.0
        delay = self._backoff.ended(ran)
        if isinstance(end, Terminated):
            self.state = replace(self.state, last=end, restarts=self.state.restarts + 1)
            if delay:
                message = f"back-off {delay:g}s restarting container {self._spec['name']} of pod {key_of(self._pod)}"
                self._set(state=Waiting(CRASH_LOOP, message))
                await self._node.record(self._pod, "Warning", "BackOff", message)
        await first_of(self._stopping.wait(), self._node.clock.sleep(delay))

    async def _cannot_start(self, error: CannotStart) -> None:
        former = self.state.state
        again = isinstance(former, Waiting) and former.reason in (UnknownImage.reason, IMAGE_BACKOFF)
        reason = IMAGE_BACKOFF if again and isinstance(error, UnknownImage) else error.reason
        fresh = Waiting(reason, str(error))
        if fresh != former:
            self._set(state=fresh, ready=False)
            await self._node.record(self._pod, "Warning", "Failed", str(error))

    def _run_since_now(self) -> None:
        self._set(state=Running(self._node.clock.now()), started=False, ready=False)

    def _started_at(self) -> datetime:
        state = self.state.state
        return state.started_at if isinstance(state, Running) else self._node.clock.now()

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
