"""The machine's wall clock is set while a platform counts its windows: fault A7, with libfaketime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.faults.autoscaler.busy import CALLERS, NAME, deploy, grown, replicas, watched
from tests.faults.kit.callers import calling
from tests.faults.kit.clock import WallClock
from tests.platform.machine import Machine, machine
from tests.support.wait import eventually

JUMPS = ("+1h", "-1h", "+30d", "-30d", "+0")
WATCHED = 4.0  # s after each: some ticks, more than half of the panic window
CALM = 8.0  # s before the first: the panic window, and the tick that ends it
UP_WITHIN = 40.0  # s
IDLE = "idle"
IDLE_TIME = 15.0  # s without a request until it goes
EARLY = 10.0  # s: it may not have gone by then


@asynccontextmanager
async def platform(folder: Path, clock: WallClock) -> AsyncIterator[Machine]:
    """A platform, gateway and replicas with that clock. The command has the machine's: it cannot wait with another."""
    with ExitStack() as stack:
        here = stack.enter_context(machine(folder))
        plain, here.environment = here.environment, here.environment | clock.environment
        process = here.start("up", "--port", str(here.port), "--control-port", str(here.control))
        here.environment = plain
        try:
            await eventually((here.state / "platform.json").exists, UP_WITHIN)
            yield here
        finally:
            await asyncio.to_thread(stack.close)
            await asyncio.to_thread(process.wait, UP_WITHIN)


@pytest.mark.timeout(240)
@pytest.mark.fault("A7")
async def test_a_clock_that_is_set_neither_adds_nor_takes_replicas(tmp_path: Path) -> None:
    clock = WallClock(tmp_path / "clock")
    async with platform(tmp_path, clock) as here:
        await deploy(here, maxReplicas=10, targetUtilization=1.0)  # more than it needs
        async with calling(here.port, NAME, CALLERS) as calls:
            await grown(here)
            calm, seen = await watched(here, CALM), list[int]()
            for offset in JUMPS:
                clock.set(offset)
                seen += await watched(here, WATCHED)
        assert min(calm) <= min(seen), f"fewer: {calm}, then {seen}"
        assert max(seen) <= max(calm) + 1, f"a panic: {calm}, then {seen}"
        assert calls.failures == []


@pytest.mark.timeout(240)
@pytest.mark.fault("A7")
@pytest.mark.parametrize("offset", ["+1h", "-1h"])
async def test_the_last_replica_goes_after_its_idle_time_and_not_before(tmp_path: Path, offset: str) -> None:
    clock = WallClock(tmp_path / "clock")
    async with platform(tmp_path, clock) as here:
        await deploy(here, IDLE, minReplicas=0, scaleToZeroAfter=f"{IDLE_TIME:.0f}s")
        await asyncio.to_thread(here.ask, IDLE)
        clock.set(offset)
        assert set(await watched(here, EARLY, IDLE)) == {1}
        await eventually(lambda: replicas(here, IDLE) == 0, IDLE_TIME)
