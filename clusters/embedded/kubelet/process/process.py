"""Processes of the node: identified by pid and start time, observed by pidfd, whether or not they are its children."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from clusters.base.clock import Clock
from clusters.base.identity import PROC, Identity, identify, is_running, kill_group


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """The exit status of a process: an exit code, or the signal that ended it, or unknown (both None)."""

    code: int | None = None
    signal: int | None = None

    @classmethod
    def of_wait_status(cls, status: int) -> ExitStatus:
        """Convert the status of `waitpid(2)`."""
        code = os.waitstatus_to_exitcode(status)
        return cls(signal=-code) if code < 0 else cls(code=code)


UNKNOWN_EXIT: Final = ExitStatus()

ExitStatusReader = Callable[[Identity], Coroutine[Any, Any, ExitStatus]]
"""Return the exit status of an ended process that is not a child of this one. Called once; must not raise."""


async def unknown_exit(identity: Identity) -> ExitStatus:
    """Return `UNKNOWN_EXIT`: only the parent of a process can read its exit status."""
    return UNKNOWN_EXIT


class Process:
    """A process that leads its own session and process group.

    Create it inside a running event loop.
    """

    def __init__(self, identity: Identity, read_exit_status: ExitStatusReader = unknown_exit) -> None:
        self.identity = identity
        self._read_exit_status = read_exit_status
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[ExitStatus | None] = self._loop.create_future()
        self._reading: asyncio.Task[ExitStatus] | None = None
        self._pidfd = _open_pidfd(identity)
        if self._pidfd >= 0:
            self._loop.add_reader(self._pidfd, self._on_exit)
        else:
            self._ended.set_result(_reap(identity))

    @classmethod
    def adopt(cls, identity: Identity, read_exit_status: ExitStatusReader = unknown_exit) -> Process | None:
        """Observe a process that another one started. Return None when it does not run."""
        return cls(identity, read_exit_status) if is_running(identity) else None

    @property
    def running(self) -> bool:
        """Whether its exit has not been observed yet."""
        return not self._ended.done()

    async def wait(self) -> ExitStatus:
        """Wait for the exit of the process and return its status. The rest of its process group is killed by then."""
        status = await asyncio.shield(self._ended)
        if status is not None:
            return status
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read_exit_status(self.identity))
        return await asyncio.shield(self._reading)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group, which includes its children. Does nothing after the exit."""
        if self.running:
            kill_group(self.identity.pid, number)

    def kill(self) -> None:
        """Kill the process group."""
        self.signal(signal.SIGKILL)

    def detach(self) -> None:
        """Stop observing. The process continues, and `wait` never returns."""
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _on_exit(self) -> None:
        kill_group(self.identity.pid, signal.SIGKILL)  # its children, as at the exit of a container's first process
        self.detach()
        self._ended.set_result(_reap(self.identity))


async def terminate(process: Process, grace: float, clock: Clock) -> ExitStatus:
    """Send SIGTERM to the process group, and SIGKILL if the process still runs after `grace` seconds."""
    process.signal(signal.SIGTERM)
    await first_of(process.wait(), clock.sleep(grace))
    process.kill()
    return await process.wait()


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until one of the coroutines returns or raises, and cancel the others. Raises its exception."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


def _open_pidfd(identity: Identity) -> int:
    """Return a pidfd of exactly this process, also of a zombie, or -1."""
    try:
        pidfd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return -1
    if identify(identity.pid) == identity:  # checked after the open, so the descriptor belongs to this process
        return pidfd
    os.close(pidfd)
    return -1


def _reap(identity: Identity) -> ExitStatus | None:
    """Return the exit status of a child of this process, None for other processes."""
    try:
        pid, status = os.waitpid(identity.pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return ExitStatus.of_wait_status(status) if pid else None


def read_oom_kills() -> int:
    """Return the number of processes that the kernel's OOM killer has ended since boot."""
    for line in (PROC / "vmstat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return 0
