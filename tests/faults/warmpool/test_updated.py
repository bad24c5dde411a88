"""A pool whose template changes while a Model of the new one is asked: no member of the former serves it. Fault W6.

On one machine the server's image is that of the platform; another template makes other members by the same way.
"""

from __future__ import annotations

import pytest

from clusters.base.objects import WARM_POOL
from tests.faults.kit import programs
from tests.faults.warmpool.conftest import POOL, PYTHON, Stage, names
from tests.scenarios.test_scaling import at_zero
from tests.support.wait import eventually

NAME, SIZE = "updated", 2
UPDATED = {"timeout": "77s"}


@pytest.mark.fault("W6")
async def test_members_of_the_former_template_are_drained_and_never_claimed_for_the_new_one(stage: Stage) -> None:
    await stage.deploy(NAME, programs.late(0.0), **UPDATED)
    await stage.pool(SIZE)
    former = names(await stage.members())
    assert len(former) == SIZE

    change = {"spec": {"template": {**PYTHON, **UPDATED}}}
    await stage.world.cluster.patch(WARM_POOL, POOL, change, "default", manager="test")
    answer = await stage.world.ask(NAME, value=2.0)  # while the former ones are still there
    assert answer.status == 200 and answer.body["outputs"][0]["data"] == [4.0]
    assert names(await stage.claimed(NAME)).isdisjoint(former)

    async def renewed() -> bool:
        found = names(await stage.members())
        return len(found) == SIZE and found.isdisjoint(former)

    await stage.world.eventually(renewed)
    await at_zero(stage.world, f"{NAME}-00001")
    await stage.world.pool_has(POOL, SIZE)
    fresh = names(await stage.members())
    assert (await stage.world.ask(NAME, value=3.0)).status == 200
    (claimed,) = await eventually(lambda: stage.claimed(NAME))
    assert names([claimed]) <= fresh and not fresh & former
