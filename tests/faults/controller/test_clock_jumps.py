"""The wall clock of a controller jumps while it leads and moves a rollout on (K9)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from clusters.base.objects import parse_timestamp
from serving.reconciler.rollout.state import RolloutState, rollout_of
from tests.faults.kit.clock import WallClock
from tests.faults.kit.served import Served, controller, served, uri
from tests.serving.models import model_object
from tests.support.replicas import until_ready
from tests.support.wait import eventually

STEP = 6.0  # s
STEPS = [10, 50, 100]
JUMPS = ("+1h", "-1h", "+30d", "-30d")
SOME = 1.5  # s within a step until the clock jumps
TAKEN = timedelta(seconds=STEP * 4)
"""By one step, at most, on a busy machine."""
LED_WITHIN = 20.0
"""s until another one leads: the Lease's 8 s, a look at it every 2 s, and a busy machine."""
RULE = {
    "steps": STEPS,
    "stepDuration": f"{STEP:g}s",
    "onInsufficientTraffic": "promote",
    "judge": {"interval": "1s"},
}


def test_the_library_sets_the_wall_clock_alone(tmp_path: Path) -> None:
    """Else the test below would prove nothing: it checks its own tool."""
    clock = WallClock(tmp_path / "clock")
    clock.set("+30d")
    looks = "import time; print(time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))"
    process = [sys.executable, "-c", looks]
    said = subprocess.run(process, env=clock.environment, capture_output=True, text=True, check=True).stdout.split()
    wall, monotonic, boot = map(float, said)
    assert wall - time.time() > 29 * 86_400
    assert abs(monotonic - time.monotonic()) < 60
    assert abs(boot - time.clock_gettime(time.CLOCK_BOOTTIME)) < 60


@pytest.mark.fault("K9", shortened="steps of 6 s, not 60 s")
@pytest.mark.timeout(200)
@pytest.mark.parametrize("jump", JUMPS)
async def test_a_jump_of_the_clock_changes_no_leader_and_neither_skips_nor_repeats_a_step(
    tmp_path: Path, jump: str
) -> None:
    clock = WallClock(tmp_path / "clock")
    async with (
        served(tmp_path, tls=False) as here,  # a certificate is not valid 30 days before it was made
        controller(here.kubeconfig, "leader", **clock.environment) as leader,
    ):
        await until_ready(leader)
        await eventually(leader.leads)
        async with controller(here.kubeconfig, "standby"):
            await _serve_first(here)
            await here.stage.edit({"spec": {"storageUri": uri(2)}})
            await here.stage.comes_up("magika-00002")
            await _in_force(here, STEPS[0])
            began = time.monotonic()
            await asyncio.sleep(SOME)  # within the step
            clock.set(jump)
            await _in_force(here, STEPS[1])
            first_step = time.monotonic() - began
            state = await _ended(here)
        assert await leader.leads()
    assert STEP - 1.0 <= first_step <= TAKEN.total_seconds()
    assert state.phase == "Promoted", state.reasons
    _took_each_step(state)
    assert here.transcript.terms == [0]


@pytest.mark.fault("K9", shortened="steps of 6 s, not 60 s")
@pytest.mark.timeout(200)
@pytest.mark.parametrize("jump", JUMPS)
async def test_another_leader_whose_clock_is_another_goes_on_where_the_step_stood(tmp_path: Path, jump: str) -> None:
    clock = WallClock(tmp_path / "clock")
    clock.set(jump)
    async with (
        served(tmp_path, tls=False) as here,
        controller(here.kubeconfig, "leader") as leader,
    ):
        await until_ready(leader)
        await eventually(leader.leads)
        async with controller(here.kubeconfig, "standby", **clock.environment) as standby:
            await until_ready(standby)
            await _serve_first(here)
            await here.stage.edit({"spec": {"storageUri": uri(2)}})
            await here.stage.comes_up("magika-00002")
            await _in_force(here, STEPS[0])
            began = time.monotonic()
            await asyncio.sleep(2 * SOME)  # within the step, a look of the judge after its begin
            leader.process.kill()
            ran = time.monotonic() - began
            await eventually(standby.leads, LED_WITHIN)
            led = time.monotonic()
            await _in_force(here, STEPS[1])
            rest = time.monotonic() - led
            state = await _ended(here)
    assert STEP - ran - 1.0 <= rest <= TAKEN.total_seconds()
    assert state.phase == "Promoted", state.reasons
    _took_each_step(state)
    assert here.transcript.terms == [0, 1]


async def _serve_first(here: Served) -> None:
    """Version 1 has all the traffic."""
    await here.stage.deploy(model_object(storageUri=uri(1), rollout=RULE))
    await here.stage.comes_up("magika-00001")
    await here.stage.traffic_is({"magika-00001": 100})


def _took_each_step(state: RolloutState) -> None:
    """For as long as a step takes, as its times say."""
    assert [one.percent for one in state.passed] == STEPS
    for one in state.passed:
        took = parse_timestamp(one.until) - parse_timestamp(one.since)
        assert timedelta(seconds=STEP - 1) <= took <= TAKEN


async def _look(here: Served) -> RolloutState:
    """The rollout; the data plane is played meanwhile."""
    await here.stage.ingress_is_ready("magika")
    state = rollout_of(await here.stage.model())
    assert state is not None
    return state


async def _in_force(here: Served, percent: int) -> None:
    async def holds() -> bool:
        state = await _look(here)
        assert state.runs, state.reasons
        return state.percent == percent and bool(state.seen_at)

    await eventually(holds, TAKEN.total_seconds())


async def _ended(here: Served) -> RolloutState:
    async def holds() -> bool:
        return not (await _look(here)).runs

    await eventually(holds, 3 * TAKEN.total_seconds())
    return await _look(here)
