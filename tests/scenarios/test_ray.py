"""A Ray Serve application as a Model: composed and multiplexed, split and rolled back, to zero and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from clusters.base.objects import POD, name_of
from tests.scenarios.answers import Answer
from tests.scenarios.test_formats import allow_code
from tests.scenarios.world import World

pytestmark = pytest.mark.timeout(900)

SPEC: dict[str, Any] = {
    "modelFormat": "ray", "resources": {"cpu": "600m", "memory": "2Gi"}, "scaleToZeroAfter": "20s"
}  # fmt: skip
"""Two versions at the same time have to fit two cores, beside all else that runs in a cluster."""
STARTS_WITHIN = 300.0
"""Seconds; on two busy cores a Ray takes a minute."""


@pytest_asyncio.fixture(autouse=True, loop_scope="package")
async def _code_is_allowed(world: World) -> AsyncIterator[None]:
    await allow_code(world, world.namespace, "true")
    yield


async def add(world: World, name: str) -> Answer:
    return await world.send("POST", "/add", {"Host": world.host(name)}, {"number": 1})


async def test_an_application_lives_is_split_rolled_back_and_comes_back_from_zero(world: World) -> None:
    await world.deploy("composed", storageUri=world.artifacts("composed"), wait=False, minReplicas=1, **SPEC)

    async def lives() -> bool:
        return bool((await add(world, "composed")).body == {"sum": 3})

    await world.eventually(lives, STARTS_WITHIN)
    chosen = await world.send(
        "GET", "/multiplexed", {"Host": world.host("composed"), "serve-multiplexed-model-id": "a"}
    )
    assert (chosen.status, chosen.body) == (200, b"a:1")

    shares = [{"revision": "composed-00001", "percent": 90}, {"latest": True, "percent": 10}]
    await world.deploy("composed", storageUri=world.artifacts("composed-again"), traffic=shares, wait=False)

    async def split() -> bool:
        return "composed-00002" in [(await add(world, "composed")).revision for _ in range(20)]

    await world.eventually(split, STARTS_WITHIN)
    answers = [await add(world, "composed") for _ in range(120)]
    assert {answer.status for answer in answers} == {200}
    sums = {answer.revision: answer.body["sum"] for answer in answers}
    assert sums == {"composed-00001": 3, "composed-00002": 21}
    assert 0 < Counter(answer.revision for answer in answers)["composed-00002"] < 40

    back = [{"revision": "composed-00001", "percent": 100}]
    await world.deploy("composed", traffic=back)
    await world.carries("composed", {"composed-00001": 100})
    assert {(await add(world, "composed")).body["sum"] for _ in range(30)} == {3}

    await world.deploy("composed", minReplicas=0, wait=False)

    async def at_zero() -> bool:
        pods = (await world.cluster.list(POD, world.namespace)).items
        return not any(name_of(pod).startswith("composed-0") for pod in pods)

    await world.eventually(at_zero, 180.0)
    await world.eventually(lives, STARTS_WITHIN)
