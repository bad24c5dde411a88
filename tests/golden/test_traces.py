"""The embedded cluster does what real Knative was seen to do, case by case: conditions, reasons, orders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from autoscaler.types import CLASS
from clusters.base.clock import SystemClock
from clusters.base.objects import NAMESPACE, Key
from serving.types.settings.settings import Settings
from tests.golden.cases import CASES, play
from tests.golden.comparison import differences, vocabulary
from tests.golden.deliberate import DELIBERATE, Deliberate, excused, widened
from tests.golden.files import read_goldens
from tests.golden.reduction import Golden
from tests.golden.scene import NAME, Stage
from tests.golden.trace import Trace
from tests.scenarios import embedded
from tests.scenarios.world import World, infer_body

DEADLINE = 3  # s; the kubelet sees the container end within a second
WINDOW = 6  # s; the least
WITHIN = 60.0  # s for one step; generous: the machine may be busy
QUIET = 1.5  # s; passes follow each other within milliseconds here, ticks of the autoscaler within a second

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOLDENS = read_goldens()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def traces(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mapping[str, Trace]]:
    """Case → what happens on this machine; they all play at once, each in its namespace."""
    async with embedded.world(tmp_path_factory.mktemp("golden")) as world:
        stage = Stage(
            world.cluster, CLASS, Settings().server, world.artifacts, Asks(world), DEADLINE, WINDOW, WITHIN, QUIET
        )
        for case in CASES:
            await world.cluster.create(NAMESPACE, {"metadata": {"name": f"golden-{case}"}}, manager="tests")
        played = await asyncio.gather(*(play(case, stage, f"golden-{case}", SystemClock()) for case in CASES))
        yield dict(zip(CASES, played, strict=True))


class Asks:
    """One inference at a Service's public address; calling it returns the HTTP status."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def __call__(self, service: Key) -> int:
        host = {"Host": f"{service.name}.{service.namespace}.localhost"}
        return (await self._world.send("POST", f"/v2/models/{NAME}/infer", host, infer_body(1.0))).status


def faults(golden: Golden, trace: Trace, table: tuple[Deliberate, ...]) -> list[str]:
    """All differences that the table does not excuse."""
    seen = widened(vocabulary(GOLDENS.values()), table)
    return [str(one) for one in differences(excused(golden, table), trace, seen)]


@pytest.mark.parametrize("case", CASES)
async def test_a_case_goes_as_on_real_knative(case: str, traces: Mapping[str, Trace]) -> None:
    assert faults(GOLDENS[case], traces[case], DELIBERATE) == []


@pytest.mark.parametrize("number", range(len(DELIBERATE)))
async def test_a_deliberate_difference_is_still_there(number: int, traces: Mapping[str, Trace]) -> None:
    others = DELIBERATE[:number] + DELIBERATE[number + 1 :]
    assert any(faults(GOLDENS[case], traces[case], others) for case in CASES), "remove it from the table"


async def test_every_golden_trace_is_of_a_case_and_was_recorded_often_enough() -> None:
    assert set(GOLDENS) == set(CASES)
    assert min(golden.recordings for golden in GOLDENS.values()) >= 10
    assert len({golden.knative for golden in GOLDENS.values()}) == 1
