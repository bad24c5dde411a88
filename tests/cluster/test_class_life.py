"""Plain Knative Services of our class come, start over and go, beside those of Knative's own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from autoscaler.types import CLASS
from clusters.base.objects import POD_AUTOSCALER, Object
from tests.cluster.calling import Answers, Caller
from tests.cluster.plain import FIRST, NAME, Plain
from tests.support.kubernetes import KNATIVE_CLASS

pytestmark = pytest.mark.usefixtures("autoscaler")

KPA = "kpa"
NOISE = 2.0  # s by which two starts at once may differ by chance
BEFORE = {"target": "1", "target-utilization-percentage": "100", "max-scale": "3", "window": "30s"}


async def test_a_service_is_ready_as_soon_as_one_of_knatives_class_and_leaves_as_little(
    plain: Plain, caller: Caller
) -> None:
    async def life(name: str, autoscaler_class: str) -> float:
        await plain.create(name, {"min-scale": "1"}, autoscaler_class=autoscaler_class)
        return await plain.ready(name)

    ours, theirs = await asyncio.gather(life(NAME, CLASS), life(KPA, KNATIVE_CLASS))
    answers = Answers()
    for name in (NAME, KPA):
        await caller.ask(answers, name)

    assert answers.failures == []
    assert ours < 1.5 * theirs + NOISE
    assert_order(one["status"] for one in plain.history(POD_AUTOSCALER) if one.get("status"))
    await asyncio.gather(plain.delete(NAME), plain.delete(KPA))  # returns when nothing is left


def assert_order(statuses: Iterable[Object]) -> None:
    """What a Revision needs: `ScaleTargetInitialized` stays, and no Ready=False with a serviceName comes before it."""
    initialized = False
    for status in statuses:
        found = {one["type"]: one["status"] for one in status.get("conditions") or ()}
        assert not initialized or found.get("ScaleTargetInitialized") == "True"
        initialized = found.get("ScaleTargetInitialized") == "True"
        assert initialized or found.get("Ready") != "False" or not status.get("serviceName")


async def test_a_service_made_again_is_not_scaled_by_what_was_known_of_its_namesake(
    plain: Plain, caller: Caller
) -> None:
    await plain.create(NAME, BEFORE)
    await plain.ready()
    async with caller.busy(3, ms=500):
        await plain.scaled(3)
    await plain.delete()
    plain.forget()

    await plain.create(NAME, BEFORE)
    await plain.ready()
    await plain.says(POD_AUTOSCALER, FIRST, "Active", "True")
    assert plain.most_asked() == 1
