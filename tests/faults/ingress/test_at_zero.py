"""Bursts for a model that has no replica: held, woken once, answered; and for one that never starts: told in time."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from loadtests.bench.processes import ProcessUsage, processes_of, pss, usage_of
from tests.faults.ingress.callers import callers
from tests.platform.machine import Machine, machine
from tests.support.wait import eventually

IDLE_WITHIN = 30.0  # s from the last answer to no replica
DEADLINE = 3  # s, the timeout of the model that never starts
LATE = 5.0  # s that an answer may come after it on a machine with too much to do
BURST = 200
MIB = 2**20


def deploy(here: Machine, name: str, artifact: str, **spec: Any) -> None:
    """Without waiting."""
    uri = Path(here.artifact(artifact)).as_uri()
    model = {
        "apiVersion": "knodel.dev/v1alpha1",
        "kind": "Model",
        "metadata": {"name": name},
        "spec": {"storageUri": uri, "scaleToZeroAfter": "1s", "maxReplicas": 2, **spec},
    }
    here.run("deploy", "-f", "-", "--no-wait", stdin=json.dumps(model))


@pytest.mark.fault("I1")
@pytest.mark.timeout(180)
def test_a_hundred_and_a_thousand_requests_at_once_wake_a_model_and_are_all_answered(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        deploy(here, "asleep", "double")
        here.run("wait", "asleep")
        asyncio.run(burst_after_burst(here))


async def burst_after_burst(here: Machine) -> None:
    """Each with no replica there."""
    async with callers(here, "asleep") as model:
        for number in (100, 1000):
            await eventually(lambda: "replica" not in here.processes(), IDLE_WITHIN)
            began = time.monotonic()
            tally = await model.at_once(number)
            print(f"{number} at zero: all answered after {time.monotonic() - began:.2f} s")
            assert dict(tally.statuses) == {200: number}


BREAKS = {
    "cannot be loaded": ("double", b"no model any more"),
    "hangs": ("code", b"import time\n\ntime.sleep(1_000)\n"),
}
"""What a model was when it was deployed, and what its file holds when it is to start again."""


@pytest.mark.fault("I2", shortened="deadline of 3 s instead of 300 s")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", BREAKS)
def test_requests_of_a_model_that_never_starts_are_told_by_the_deadline_and_leave_nothing(
    tmp_path: Path, kind: str
) -> None:
    artifact, broken = BREAKS[kind]
    with machine(tmp_path) as here:
        here.up()
        code = {"modelFormat": "python"} if artifact == "code" else {}
        deploy(here, "broken", artifact, timeout=f"{DEADLINE}s", **code)
        here.run("wait", "broken")
        Path(here.artifact(artifact)).write_bytes(broken)
        asyncio.run(told_and_forgotten(here))


async def told_and_forgotten(here: Machine) -> None:
    """Bursts with no replica there; after them, the processes that held them are as small as they were."""
    await eventually(lambda: "replica" not in here.processes(), IDLE_WITHIN)
    async with callers(here, "broken") as model:
        await model.at_once(BURST)  # what is allocated once is there
        before = {role: held_by(here, role) for role in ("gateway", "activator")}
        for _ in range(2):
            began = time.monotonic()
            tally = await model.at_once(BURST)
            assert time.monotonic() - began < DEADLINE + LATE
            assert set(tally.statuses) == {503}
            assert tally.faults == []
    for role, base in before.items():
        await eventually(lambda role=role, most=base.files + 5: held_by(here, role).files <= most)  # type: ignore[misc]
        now = held_by(here, role)
        assert now.memory <= base.memory * 1.1 + MIB, f"{role}: {base} → {now}"
        assert now.tasks == base.tasks


def held_by(here: Machine, role: str) -> ProcessUsage:
    """By the process of that role, of shared memory its part."""
    return usage_of(next(pid for pid, found in processes_of(here.state) if found == role), pss)
