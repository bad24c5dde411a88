"""To zero and from it: no request may notice, whenever it comes."""

from __future__ import annotations

import asyncio

import pytest

from autoscaler.reconciler.scale_to_zero import IN_PATH
from clusters.objects import POD_AUTOSCALER, SERVERLESS_SERVICE, is_true
from tests.cluster.plain import FIRST, Answers, Caller, Plain

pytestmark = pytest.mark.usefixtures("autoscaler")

RATE = 20.0  # requests a second
RACERS = (0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.4, 3.0)
"""s after the activator was put in the path: when requests begin to race the scale to zero."""


async def test_without_requests_the_activator_is_proven_in_the_path_before_the_last_replica_goes(
    plain: Plain, caller: Caller
) -> None:
    await plain.create(window="6s", target_burst_capacity="0")
    await plain.ready()
    await plain.until(lambda: plain.mode() == "Serve")
    await plain.until(lambda: plain.backends() == plain.addresses())
    await plain.scaled(0)
    stood = [one for one in plain.moments if one.name in (FIRST, f"{FIRST}-deployment") and one.after is not None]
    went = next(n for n, one in enumerate(stood) if one.after["spec"].get("replicas") == 0)
    service = next(one.after for one in reversed(stood[:went]) if one.kind is SERVERLESS_SERVICE)
    assert service["spec"]["mode"] == "Proxy" and is_true(service, IN_PATH)
    await plain.says(POD_AUTOSCALER, FIRST, "Active", "False", "NoTraffic")

    await plain.until(lambda: not plain.pods())
    answers = Answers()
    await asyncio.gather(*(caller.ask(answers) for _ in range(10)))  # held by the activator, all of them
    assert answers.failures == [] and answers.pods.total() == 10
    await plain.says(POD_AUTOSCALER, FIRST, "Active", "True")


@pytest.mark.parametrize("burst", ["0", "-1"])
async def test_requests_that_race_the_scale_to_zero_are_all_answered(plain: Plain, caller: Caller, burst: str) -> None:
    async def race(name: str, delay: float) -> Answers:
        revision = f"{name}-00001"
        await plain.create(name, window="6s", target_burst_capacity=burst)
        await plain.ready(name)
        if burst == "0":
            await plain.until(lambda: plain.mode(revision) == "Serve")
            await plain.until(lambda: plain.mode(revision) == "Proxy")
        else:
            await plain.says(POD_AUTOSCALER, revision, "Active", "False", "NoTraffic")
        await asyncio.sleep(delay)
        return await stream(caller, name, 4.0)

    found = await asyncio.gather(*(race(f"race{n}", delay) for n, delay in enumerate(RACERS)))
    assert [answers.failures for answers in found] == [[] for _ in RACERS]
    reached = [
        min(one["spec"]["replicas"] for one in plain.history_of_scale(f"race{n}-00001")) for n in range(len(RACERS))
    ]
    print(reached, [len(a.pods) for a in found], [max(a.seconds) for a in found])


async def stream(caller: Caller, name: str, seconds: float) -> Answers:
    """Requests at `RATE`, each sent whatever became of those before."""
    answers = Answers()
    async with asyncio.TaskGroup() as group:
        for _ in range(round(seconds * RATE)):
            group.create_task(caller.ask(answers, name))
            await asyncio.sleep(1 / RATE)
    return answers
