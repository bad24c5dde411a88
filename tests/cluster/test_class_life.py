"""The life of plain Knative Services of our class, beside those of Knative's own."""

from __future__ import annotations

import asyncio
import time

import pytest

from autoscaler.apis import CLASS
from clusters.objects import POD_AUTOSCALER, Object
from tests.cluster.plain import NAME, Answers, Caller, Plain
from tests.support.kubernetes import KNATIVE_CLASS

pytestmark = pytest.mark.usefixtures("autoscaler")


async def test_a_service_becomes_ready_as_soon_as_one_of_knatives_class_and_leaves_nothing(
    plain: Plain, caller: Caller
) -> None:
    async def life(name: str, autoscaler_class: str) -> float:
        began = await plain.create(name, autoscaler_class=autoscaler_class, min_scale="1")
        await plain.ready(name)
        return time.monotonic() - began

    ours, theirs = await asyncio.gather(life(NAME, CLASS), life("kpa", KNATIVE_CLASS))
    assert ours < 1.5 * theirs + 1.0
    answers = Answers()
    for name in (NAME, "kpa"):
        await caller.ask(answers, name)
    assert answers.failures == []
    statuses = [one["status"] for one in plain.history(POD_AUTOSCALER) if one.get("status")]
    assert_order(statuses)
    await asyncio.gather(plain.delete(NAME), plain.delete("kpa"))


def assert_order(statuses: list[Object]) -> None:
    """What a Revision needs: `ScaleTargetInitialized` stays, and no Ready=False with a serviceName comes before it."""
    initialized = False
    for status in statuses:
        found = {one["type"]: one["status"] for one in status.get("conditions") or ()}
        assert not (initialized and found.get("ScaleTargetInitialized") != "True")
        initialized = found.get("ScaleTargetInitialized") == "True"
        assert initialized or found.get("Ready") != "False" or not status.get("serviceName")
