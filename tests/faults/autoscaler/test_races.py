"""The last request against zero, in thousands of random schedules; and what it leaves in the processes: A10, W7."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.faults.kit.resources import back_to_base, counts, holdings
from tests.platform.machine import Machine, machine
from tests.platform.zero import SHOWN, Races, Tally
from tests.support.wait import eventually

ALL, SOME = 5_000, 200  # schedules, without and with a warm pool each
MODELS = 20
MEMBERS = 4
LIMIT = 900.0  # s; SOME take 25
WARM_UP = 40  # schedules after which pools of connections, caches and the allocator have what they keep


@pytest.mark.timeout(2_400)
@pytest.mark.fault("A10", shortened=f"{2 * SOME} schedules, not 10 000")
@pytest.mark.fault("W7", shortened=f"{SOME} schedules with a warm pool, not 5 000")
async def test_no_request_is_lost_at_zero_and_nothing_is_left_in_any_process(tmp_path: Path, full: bool) -> None:
    schedules = ALL if full else SOME
    with machine(tmp_path) as here:
        await asyncio.to_thread(here.up)
        races = Races(here, MODELS)
        await asyncio.to_thread(races.deploy)
        cold = await races.run(schedules, LIMIT)
        await asyncio.to_thread(races.pool, MEMBERS)
        await races.run(WARM_UP, LIMIT)
        await at_rest(here)
        base = holdings(here.state)
        warm = await races.run(schedules, LIMIT)
        await at_rest(here)
        await back_to_base(here.state, base)
    for tally in (cold, warm):
        check(tally, schedules)
    assert warm.found["claim"] > 0


def check(tally: Tally, schedules: int) -> None:
    """All was answered, and raced."""
    print(tally)
    assert tally.failures[:SHOWN] == []
    assert tally.schedules == schedules
    assert tally.found["ready"] > 0 and tally.found["start"] + tally.found["claim"] > 0


async def at_rest(here: Machine) -> None:
    """Return once all models are at zero and the pool is full: no process but its members serves."""

    def rests() -> bool:
        found = counts(here.state)["replica"]
        assert found == MEMBERS, f"{found} processes of replicas"
        return True

    await eventually(rests, 60.0)
