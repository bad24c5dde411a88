"""A real activator process, and the link to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.base.clock import SystemClock
from clusters.base.objects import Key
from clusters.embedded.activator.link import ActivatorLink
from clusters.embedded.activator.process import ActivatorProcess
from clusters.embedded.activator.wire import ActivatorTarget, RevisionLoad
from clusters.net.endpoints import Endpoint
from loadtests.bench.processes import cpu_seconds, pss
from tests.clusters.activator.caller import REVISION, Caller
from tests.support.wait import eventually

TOKEN = "of the activator"


class Running:
    """An activator, and the link of its control plane."""

    def __init__(self, process: ActivatorProcess) -> None:
        self.process = process
        self.link: ActivatorLink = process.link
        self._callers: list[Caller] = []
        self.wakes: list[tuple[Key, RevisionLoad]] = []
        self.link.subscribe(lambda key: self.wakes.append((key, self.link.load(key))))

    @property
    def pid(self) -> int:
        assert self.process.identity is not None
        return self.process.identity.pid

    @property
    def load(self) -> RevisionLoad:
        return self.link.load(REVISION)

    async def caller(self) -> Caller:
        caller = await Caller.connect(self.process.address)
        self._callers.append(caller)
        return caller

    def hang_up(self) -> None:
        """End all callers' connections."""
        for caller in self._callers:
            caller.leave()

    async def callers(self, number: int) -> list[Caller]:
        return [await self.caller() for _ in range(number)]

    async def serve(
        self, *endpoints: Endpoint, hold: int = 2000, slots: int = 0, timeout: float = 20.0, key: Key = REVISION
    ) -> None:
        """Tell the activator where the revision is."""
        await self.link.set_target(ActivatorTarget(key, endpoints, hold, slots, timeout))

    async def queued(self, number: int) -> None:
        """Return when that many wait."""
        await eventually(lambda: self.load.queued == number)

    async def idle(self) -> None:
        """Return when nothing waits and nothing runs."""
        await eventually(lambda: self.load == RevisionLoad())

    def memory(self) -> int:
        """PSS in bytes."""
        found = pss(self.pid)
        assert found, "the activator has ended"
        return found

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        return cpu_seconds(self.pid)


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Running]:
    """Run an activator with its files in `folder`, and stop it afterwards."""
    process = ActivatorProcess(folder, SystemClock(), TOKEN)
    one = Running(process)
    task: asyncio.Task[None] | None = None
    try:
        await process.start()
        task = asyncio.create_task(process.run())
        await process.link.wait_connected()
        yield one
    finally:
        one.hang_up()
        await process.stop(1.0)
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def activator(tmp_path: Path) -> AsyncIterator[Running]:
    """An activator without targets."""
    async with running(tmp_path / "activator") as one:
        yield one
