"""SIGKILL between the steps of an event: after a restart, each event has had one effect, and its status shows it."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from clusters.base.objects import generation_of
from tests.eventing.world import event_spec, event_world

PLATFORM = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.eventing.world import event_spec, event_world

async def main(folder, writes, moment):
    async with event_world(Path(folder), running=False) as world:
        await world.send(*(event_spec(number) for number in (1, 3, 2)))
    async with event_world(Path(folder)) as world:
        patch, count = world.cluster.patch, 0

        async def patch_or_die(*arguments, **options):
            nonlocal count
            count += 1
            mine = count
            if (mine, moment) == (writes, "before"):
                os.kill(os.getpid(), signal.SIGKILL)
            answer = await patch(*arguments, **options)
            if (mine, moment) == (writes, "after"):
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        world.cluster.patch = patch_or_die
        await asyncio.sleep(30)

asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
"""


@pytest.mark.parametrize(
    ("writes", "moment"),
    [
        pytest.param(1, "before", id="before the effect"),
        pytest.param(1, "after", id="between the effect and its status"),
        pytest.param(2, "after", id="between two statuses"),
    ],
)
async def test_no_effect_is_missed_or_had_twice(tmp_path: Path, writes: int, moment: str) -> None:
    command = (sys.executable, "-c", PLATFORM, str(tmp_path), str(writes), moment)
    process = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parents[2])
    assert await asyncio.wait_for(process.wait(), 20) == -signal.SIGKILL
    async with event_world(tmp_path) as world:
        await world.becomes(e1="Superseded", e2="Superseded", e3="Applied")
        world.clock.step(60)
        await world.send(event_spec(4))
        await world.becomes(e4="Applied")
        model = await world.model()
        assert model["spec"]["version"] == "4"
        assert generation_of(model) == 3  # made, and two effects
