"""Processes as the kubelet holds them: known by their identity, watched by pidfd, its own children or not."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from clusters.base.clock import Clock
from clusters.base.identity import PROC, Identity, identify, is_running, kill_group


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: an exit code, or a signal, or (both None) nobody knows."""

    code: int | None = None
    signal: int | None = None

    @classmethod
    def of_wait_status(cls, status: int) -> Exit:
        """From what `waitpid(2)` reports."""
        code = os.waitstatus_to_exitcode(status)
        return cls(signal=-code) if code < 0 else cls(code=code)


UNKNOWN_EXIT: Final = Exit()

ExitSource = Callable[[Identity], Awaitable[Exit]]
"""Asked once, after a process ended that is no child of this one, by whoever is able to know how; raises nothing."""


async def nobody(identity: Identity) -> Exit:
    """The source for processes whose end nobody but their parent learns."""
    return UNKNOWN_EXIT


class Process:
    """A process, leader of its own session and process group; made inside a running event loop."""

    def __init__(self, identity: Identity, exit_source: ExitSource = nobody) -> None:
        self.identity = identity
        self._exit_source = exit_source
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Exit | None] = self._loop.create_future()
        self._learning: asyncio.Task[Exit] | None = None
        self._pidfd = _open(identity)
        if self._pidfd >= 0:
            self._loop.add_reader(self._pidfd, self._on_end)
        else:
            self._ended.set_result(_reap(identity))

    @classmethod
    def adopt(cls, identity: Identity, exit_source: ExitSource = nobody) -> Process | None:
        """Watch a process that somebody else started; None when it does not run."""
        return cls(identity, exit_source) if is_running(identity) else None

    @property
    def running(self) -> bool:
        """Whether its end has not been seen."""
        return not self._ended.done()

    async def wait(self) -> Exit:
        """Return how it ended, once it has; what is left of its group has been killed then."""
        end = await asyncio.shield(self._ended)
        if end is not None:
            return end
        if self._learning is None:
            self._learning = asyncio.ensure_future(self._learn())
        return await asyncio.shield(self._learning)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group, so to all that it started, too; nothing when it has ended."""
        if self.running:
            kill_group(self.identity.pid, number)

    def kill(self) -> None:
        """End it and its group at once."""
        self.signal(signal.SIGKILL)

    def detach(self) -> None:
        """Stop watching; the process goes on, and `wait` never returns."""
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _on_end(self) -> None:
        kill_group(self.identity.pid, signal.SIGKILL)  # what it left running, as when a container's first process ends
        self.detach()
        self._ended.set_result(_reap(self.identity))

    async def _learn(self) -> Exit:
        return await self._exit_source(self.identity)


async def terminate(process: Process, grace: float, clock: Clock) -> Exit:
    """SIGTERM to its group, SIGKILL when it has not ended `grace` seconds later."""
    process.signal(signal.SIGTERM)
    await first_of(process.wait(), clock.sleep(grace))
    process.kill()
    return await process.wait()


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of them has, or raise what it raised; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


def _open(identity: Identity) -> int:
    """A pidfd of this very process, zombies included, or -1."""
    try:
        pidfd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return -1
    if identify(identity.pid) == identity:  # looked at after the open, so the descriptor is of this very process
        return pidfd
    os.close(pidfd)
    return -1


def _reap(identity: Identity) -> Exit | None:
    """How a child of this very process ended; None when it is not ours."""
    try:
        pid, status = os.waitpid(identity.pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return Exit.of_wait_status(status) if pid else None


def oom_kills() -> int:
    """How many processes the kernel has ended for want of memory since boot."""
    for line in (PROC / "vmstat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return 0
