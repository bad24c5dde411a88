"""One tenant with a burst that is larger than the pool, and others who come meanwhile: fault W5."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.kit import programs
from tests.faults.warmpool.conftest import Stage
from tests.scenarios.test_scaling import living_pods

GREEDY, MEMBERS, OTHERS = "greedy", 2, 5
CALLERS = 32
ANSWER = 0.5  # s


@pytest.mark.timeout(180)
@pytest.mark.fault("W5")
async def test_a_burst_that_empties_the_pool_blocks_nobody_else(stage: Stage) -> None:
    others = [f"modest-{number}" for number in range(OTHERS)]
    for name in others:
        await stage.deploy(name, programs.late(0.0))
    await stage.deploy(GREEDY, programs.sleeper(ANSWER), maxReplicas=6, scaleTarget=1, minReplicas=1)
    await stage.pool(MEMBERS)

    async with stage.world.under_load(GREEDY, concurrency=CALLERS) as burst:
        await stage.world.eventually(lambda: grown(stage))
        # The burst goes on until all of them have their answer: they cannot have waited for its end.
        answers = await asyncio.gather(*(stage.world.ask(name, value=3.0) for name in others for _ in range(4)))
        assert not burst.failures

    assert [answer.status for answer in answers] == [200] * len(answers)
    assert {answer.body["outputs"][0]["data"][0] for answer in answers} == {6.0}
    assert burst.failures == [] and burst.total > CALLERS


async def grown(stage: Stage) -> bool:
    """Whether the greedy one has more replicas than the pool had members to spare."""
    return len(await living_pods(stage.world, f"{GREEDY}-00001")) > MEMBERS
