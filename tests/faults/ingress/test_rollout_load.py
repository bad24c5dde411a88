"""A new version takes over under load: no request fails, and none waits much longer than before and afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.faults.ingress.callers import Callers, Tally, callers
from tests.platform.machine import Machine, machine
from tests.support.wait import eventually

RATE = 1000.0  # requests/s, open loop
LEAST = 2000  # requests before, as many afterwards, and as many while versions take over one after the other
SLACK = 0.010  # s
TRIES = 3
"""Tries, of which one must be as fast as that: on a shared machine another program may run at the same time. No request
may fail in any."""


@pytest.mark.fault("I8")
@pytest.mark.timeout(240)
def test_a_rollout_under_load_loses_no_request_and_little_time(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        here.run("deploy", "busy", "--uri", here.artifact("double"), "--min", "1", "--version", "0")
        slower = asyncio.run(rollouts(here))
    assert min(slower) <= SLACK, slower


async def rollouts(here: Machine) -> list[float]:
    """By how many seconds the p95 of each try was above that of the steady load around it."""
    slower: list[float] = []
    versions = count(1)
    async with callers(here, "busy") as model:
        before = await steadily(model)
        while len(slower) < TRIES and min(slower, default=1.0) > SLACK:
            during = await rolled_out(here, model, versions)
            after = await steadily(model)
            steady = max(before.quantile(0.95), after.quantile(0.95))
            slower.append(during.quantile(0.95) - steady)
            for tally in (before, during, after):
                assert set(tally.statuses) == {200}, dict(tally.statuses)
            ms = ", ".join(f"{tally.quantile(0.95) * 1000:.1f}" for tally in (before, during, after))
            print(f"{RATE:.0f} requests/s, p95 before, during, after: {ms} ms; {during.total} requests meanwhile")
            before = after
    return slower


async def steadily(model: Callers) -> Tally:
    """Load without a change."""
    async with model.steadily(RATE) as tally:
        await eventually(lambda: tally.total >= LEAST)
    return tally


async def rolled_out(here: Machine, model: Callers, versions: Iterator[int]) -> Tally:
    """Version after version, each by a canary of 10 %, then of 50 %, then all of it."""
    async with model.steadily(RATE) as tally:
        while tally.total < LEAST:
            number = next(versions)
            artifact = here.artifact(("double", "triple")[number % 2])
            for arguments in (
                ("deploy", "busy", "--uri", artifact, "--canary", "10", "--version", str(number)),
                ("deploy", "busy", "--canary", "50"),
                ("promote", "busy"),
            ):
                await asyncio.to_thread(here.run, *arguments)
    return tally
