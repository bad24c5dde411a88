"""To zero and from it: no request may notice, whenever it comes."""

from __future__ import annotations

import asyncio

import pytest

from autoscaler.reconciler.scale_to_zero import IN_PATH
from clusters.base.objects import POD_AUTOSCALER, SERVERLESS_SERVICE, is_true
from tests.cluster.calling import Answers, Caller
from tests.cluster.plain import FIRST, NAME, Plain

pytestmark = pytest.mark.usefixtures("autoscaler")

RATE = 20.0  # requests a second
RACE = 4.0  # s
STARTS = (-1.2, -0.6, -0.2, 0.2, 0.6, 1.2)
"""s from the moment at which the last replica may go: when requests begin to race it."""
WINDOW = {"window": "6s"}


async def test_without_requests_the_activator_is_proven_in_the_path_before_the_last_replica_goes(
    plain: Plain, caller: Caller
) -> None:
    await plain.create(scaling={"target-burst-capacity": "0", **WINDOW})
    await plain.ready()
    await plain.until(plain.was_served)
    await plain.scaled(0)
    service = plain.stood(SERVERLESS_SERVICE, plain.when_asked(0))
    assert service["spec"]["mode"] == "Proxy" and is_true(service, IN_PATH)
    await plain.says(POD_AUTOSCALER, FIRST, "Active", "False", "NoTraffic")

    await plain.at_zero()
    answers = Answers()
    await asyncio.gather(*(caller.ask(answers) for _ in range(10)))  # held by the activator, all of them
    assert answers.failures == [] and answers.total == 10
    await plain.says(POD_AUTOSCALER, FIRST, "Active", "True")


async def test_requests_that_race_the_scale_to_zero_are_all_answered(
    plain: Plain, caller: Caller, autoscaler: float
) -> None:
    async def race(name: str, start: float) -> list[str]:
        revision = f"{name}-00001"
        await plain.create(name, {"target-burst-capacity": "0", **WINDOW})
        await plain.ready(name)
        await plain.until(lambda: plain.was_served(revision))
        await plain.until(lambda: plain.mode(revision) == "Proxy")
        await asyncio.sleep(max(0.0, autoscaler + start))
        answers = Answers()
        async with asyncio.TaskGroup() as group:
            for _ in range(round(RACE * RATE)):
                group.create_task(caller.ask(answers, name))
                await asyncio.sleep(1 / RATE)
        return answers.failures

    lost = await asyncio.gather(*(race(f"{NAME}{number}", start) for number, start in enumerate(STARTS)))
    assert lost == [[] for _ in STARTS]
