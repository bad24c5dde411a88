"""The gateway and the activator of a machine end under load, asked to or not; they come back with all they knew."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from loadtests.bench.processes import processes_of
from tests.faults.ingress.callers import Callers, Tally, callers
from tests.faults.ingress.test_at_zero import deploy
from tests.platform.machine import Machine, machine
from tests.support.wait import eventually

RATE = 100.0  # requests/s, whatever becomes of them
LEAST = 400  # requests around each end (the prober of reliability tests elsewhere)
BACK_WITHIN = 5.0  # s
LEAST_SHARE = 0.9
ENDS = [(role, number) for role in ("gateway", "activator") for number in (signal.SIGTERM, signal.SIGKILL)]


@pytest.mark.fault("I3")
@pytest.mark.timeout(240)
def test_an_ingress_that_ends_is_back_within_seconds_and_few_requests_notice(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        deploy(here, "warm", "double", minReplicas=1)
        here.run("wait", "warm")
        deploy(here, "asleep", "double")
        here.run("wait", "asleep")
        asyncio.run(each_end(here))
        here.run("down")
        assert here.processes() == []


async def each_end(here: Machine) -> None:
    """Load on a warm model all along; after each end a model at zero is woken, too."""
    async with callers(here, "warm") as warm, callers(here, "asleep") as asleep:
        for role, number in ENDS:
            tally, seconds = await ended(here, warm, role, number)
            said = (
                f"{role} by {signal.Signals(number).name}: {tally.share:.1%} of {tally.total}, back in {seconds:.2f} s"
            )
            print(said)
            assert tally.total >= LEAST
            assert tally.share >= (1.0 if role == "activator" else LEAST_SHARE), said  # a warm model does without it
            assert seconds < BACK_WITHIN, said
            woken = await asleep.at_once(10)
            assert dict(woken.statuses) == {200: 10}, said
            assert tally.faults == []


async def ended(here: Machine, model: Callers, role: str, number: int) -> tuple[Tally, float]:
    """End the process in the middle of the load; the tally, and seconds until another of the role answers."""
    former = pid_of(here, role)
    assert former is not None
    async with model.steadily(RATE) as tally:
        await eventually(lambda: tally.total >= LEAST / 4)
        os.kill(former, number)
        began = time.monotonic()
        await eventually(lambda: pid_of(here, role) not in (None, former), 2 * BACK_WITHIN)
        good = tally.statuses[200]
        await eventually(lambda: tally.statuses[200] > good, 2 * BACK_WITHIN)
        seconds = time.monotonic() - began
        await eventually(lambda: tally.total >= LEAST)
    return tally, seconds


def pid_of(here: Machine, role: str) -> int | None:
    """Of the process, None while there is none."""
    return next((pid for pid, found in processes_of(here.state) if found == role), None)
