"""Members whose process is killed before a claim, and at moments of it: no caller sees an error. Fault W1."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.kit import programs
from tests.faults.warmpool.conftest import Stage
from tests.scenarios.answers import Answer
from tests.scenarios.test_scaling import living_pods
from tests.support.wait import eventually

NAME = "woken"
CALLERS = 10
LOADING = 0.6  # s that the model takes to load
MOMENTS = (0.0, 0.3, 0.55)
"""s from the claim to the death: at once, while it loads, as it is about to be ready."""


async def asked(stage: Stage) -> list[Answer]:
    """The answers of all callers, who come at once."""
    return list(await asyncio.gather(*(stage.world.ask(NAME, value=float(number)) for number in range(CALLERS))))


def check(answers: list[Answer]) -> None:
    """Each caller has its own answer."""
    assert [answer.status for answer in answers] == [200] * CALLERS, [answer.body for answer in answers]
    assert [answer.body["outputs"][0]["data"] for answer in answers] == [[2.0 * number] for number in range(CALLERS)]


@pytest.mark.fault("W1")
async def test_members_that_were_killed_a_moment_ago_cost_their_callers_nothing(stage: Stage) -> None:
    await stage.deploy(NAME, programs.late(0.0))
    await stage.pool(2)
    for pod in await stage.members():
        stage.kill(pod)
    check(await asked(stage))


@pytest.mark.timeout(180)
@pytest.mark.fault("W1")
async def test_a_member_that_is_killed_at_any_moment_of_its_claim_is_replaced(stage: Stage) -> None:
    await stage.deploy(NAME, programs.late(LOADING))
    await stage.pool(2)
    for moment in MOMENTS:
        await stage.world.pool_has("shared", 2)
        calls = asyncio.create_task(asked(stage))
        (pod, *_) = await eventually(lambda: stage.claimed(NAME))
        await asyncio.sleep(moment)  # what the test is about: a moment of the load
        stage.kill(pod)
        check(await calls)
        await stage.world.eventually(lambda: at_rest(stage))


async def at_rest(stage: Stage) -> bool:
    """Whether the model is at zero again."""
    return not await living_pods(stage.world, f"{NAME}-00001")
