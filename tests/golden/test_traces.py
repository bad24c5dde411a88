"""The embedded cluster does what real Knative was seen to do, case by case: conditions, reasons, orders."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from autoscaler.apis import CLASS
from clusters.clock import SystemClock
from clusters.objects import Key
from serving.apis.settings import Settings
from tests.golden.cases import CASES, play
from tests.golden.comparison import differences, vocabulary
from tests.golden.deliberate import DELIBERATE
from tests.golden.files import read_goldens
from tests.golden.scene import NAME, Stage
from tests.scenarios import embedded
from tests.scenarios.world import infer_body

WITHIN = 60.0  # s for one step; generous: the machine may be busy
QUIET = 0.5  # s; passes follow each other within milliseconds here, ticks of the autoscaler within a second

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """A platform on this machine."""
    async with embedded.world(tmp_path_factory.mktemp("golden")) as world:

        async def ask(key: Key) -> int:
            answer = await world.send(
                "POST",
                f"/v2/models/{NAME}/infer",
                {"Host": f"{key.name}.{key.namespace}.localhost"},
                infer_body(1.0),
            )
            return answer.status

        yield Stage(world.cluster, CLASS, Settings().server, world.artifacts, ask, WITHIN, QUIET)


@pytest.mark.parametrize("case", CASES)
async def test_a_case_goes_as_on_real_knative(case: str, stage: Stage) -> None:
    goldens = read_goldens()
    trace = await play(case, stage, f"golden-{case}", SystemClock())

    found = differences(goldens[case], trace, vocabulary(goldens.values()))
    excused = DELIBERATE.get(case, {})
    assert [str(one) for one in found if one.at not in excused] == []
    assert set(excused) <= {one.at for one in found}, "an excuse that is not needed any more"
