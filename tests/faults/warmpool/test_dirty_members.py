"""What a tenant leaves in a member is nowhere when the next one comes: members serve once. Fault W4."""

from __future__ import annotations

import pytest

from tests.faults.kit import programs
from tests.faults.warmpool.conftest import POOL, Stage, names
from tests.scenarios.test_scaling import at_zero
from tests.support.wait import eventually

FIRST, SECOND = "first", "second"
PLANT, LOOK = 1.0, 2.0
EVERYWHERE = float((1 << len(programs.PLACES)) - 1)


async def found(stage: Stage, name: str, value: float) -> float:
    """The places in which the Model sees a canary, as bits."""
    answer = await stage.world.ask(name, value=value)
    assert answer.status == 200, answer.body
    return float(answer.body["outputs"][0]["data"][0])


@pytest.mark.fault("W4")
async def test_the_next_tenant_finds_nothing_of_the_one_before(stage: Stage) -> None:
    for name in (FIRST, SECOND):
        await stage.deploy(name, programs.tenant())
    await stage.pool(1)

    assert await found(stage, FIRST, PLANT) == EVERYWHERE, "else nothing is proven by finding none"
    (used,) = await eventually(lambda: stage.claimed(FIRST))
    pid = stage.pid(used)
    await stage.world.pool_has(POOL, 1)
    assert await found(stage, SECOND, LOOK) == 0.0, "while the first one is still there"

    await at_zero(stage.world, f"{FIRST}-00001")
    await eventually(lambda: stage.has_gone(used, pid))
    await stage.world.pool_has(POOL, 1)
    assert await found(stage, FIRST, LOOK) == 0.0, "a member of its own, again"
    (again,) = await eventually(lambda: stage.claimed(FIRST))
    assert names([used]).isdisjoint(names([again]))
    assert stage.pid(again) != pid
