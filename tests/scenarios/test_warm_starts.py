"""Warm starts: replicas out of a pool of servers that have everything but the model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from autoscaler.warmpool.claims.marks import LABEL_POOL
from autoscaler.warmpool.claims.pods import is_claimed
from clusters.base.objects import POD, Object, controller_of, is_true, name_of
from tests.scenarios.test_formats import ROWS, allow_code
from tests.scenarios.test_judged_traffic import flower
from tests.scenarios.test_scaling import at_zero, living_pods
from tests.scenarios.world import SOON, World, reason_of, traffic_of

FULL = 2  # members


async def members(world: World, pool: str) -> list[Object]:
    """The Pods of a warm pool."""
    return list((await world.cluster.list(POD, world.namespace, f"{LABEL_POOL}={pool}")).items)


async def test_a_model_at_zero_wakes_by_a_claim_and_the_pool_is_filled_again(world: World) -> None:
    await world.pool("ready", FULL)
    await world.deploy("woken", storageUri=world.artifacts("double"), maxReplicas=1, scaleToZeroAfter="1s")
    await at_zero(world, "woken-00001")
    await world.pool_has("ready", FULL)
    free = {name_of(pod) for pod in await members(world, "ready")}

    answers = await asyncio.gather(*(world.ask("woken", value=float(number)) for number in range(20)))

    assert [answer.body["outputs"][0]["data"] for answer in answers] == [[2.0 * number] for number in range(20)]
    assert {answer.revision for answer in answers} == {"woken-00001"}

    async def adopted() -> bool:
        await world.ask("woken")  # else it may be at zero again before
        pods = await living_pods(world, "woken-00001")
        return len(pods) == 1 and (controller_of(pods[0]) or {}).get("kind") == "ReplicaSet"

    await world.eventually(adopted)
    pod = (await living_pods(world, "woken-00001"))[0]
    assert name_of(pod) in free
    assert is_claimed(pod)
    await world.pool_has("ready", FULL)
    told = await world.until("woken", lambda found: last_start(found).get("pod") == name_of(pod))
    assert [step["name"] for step in last_start(told)["steps"]] == ["reserve", "assign", "label", "adopt"]


async def test_a_model_without_a_format_is_not_given_a_member_with_another_engine(world: World) -> None:
    """A claim of an ONNX member would import scikit-learn first, which takes longer than a cold start."""
    world.needs("sklearn")
    await world.pool("onnx", 1)

    free, start = await second_start_beside(world, "onnx")

    assert {"kind": "cold", "format": "sklearn"}.items() <= start.items()
    assert {name_of(pod) for pod in await members(world, "onnx")} == free


async def test_a_model_without_a_format_is_given_a_member_of_the_format_that_its_server_found(world: World) -> None:
    world.needs("sklearn")
    await world.pool("sklearn", 1, modelFormat="sklearn")

    free, start = await second_start_beside(world, "sklearn")

    assert {"kind": "warm", "format": "sklearn"}.items() <= start.items()
    assert start["pod"] in free


@pytest.mark.fault("W5")
async def test_an_empty_pool_means_a_cold_start_and_no_error(world: World) -> None:
    await world.pool("small", 1)
    await world.deploy("first", storageUri=world.artifacts("double"), maxReplicas=1, scaleToZeroAfter="1s")
    await world.deploy("second", storageUri=world.artifacts("double"), maxReplicas=1, scaleToZeroAfter="1s")
    await at_zero(world, "first-00001")
    await at_zero(world, "second-00001")
    await world.pool_has("small", 1)

    answers = await asyncio.gather(*(world.ask(name) for name in ("first", "second") for _ in range(5)))

    assert [answer.status for answer in answers] == [200] * 10


async def test_a_broken_version_is_never_ready_though_the_pool_has_a_member(world: World) -> None:
    await world.pool("kept", 1)
    free = {name_of(pod) for pod in await members(world, "kept")}

    uri = world.artifacts("truncated")
    await world.deploy("unfit", storageUri=uri, startupDeadline=SOON, wait=False)
    refused = await world.until("unfit", lambda found: "unfit-00001" in reason_of(found))

    assert not is_true(refused, "Ready")
    assert traffic_of(refused) == {}
    assert {name_of(pod) for pod in await members(world, "kept")} == free


async def test_eight_slow_requests_bring_four_replicas_and_none_is_lost(world: World) -> None:
    await allow_code(world, world.namespace, "true")
    await world.pool("four", 4, modelFormat="python")
    limits: dict[str, Any] = {
        "minReplicas": 1,
        "maxReplicas": 6,
        "scaleTarget": 2,
        "targetUtilization": 1.0,
        "scaleToZeroAfter": "6s",  # the way back to one replica takes as long
    }
    await world.deploy("crowd", storageUri=world.artifacts("sleepy"), modelFormat="python", **limits)
    await world.pool_has("four", 4)
    seen: list[int] = []

    async def has(replicas: int) -> bool:
        seen.append(len(await living_pods(world, "crowd-00001")))
        return seen[-1] == replicas

    async with world.under_load("crowd", concurrency=8, body=flower(5.1)) as load:
        await world.eventually(lambda: has(4))

    assert max(seen) <= limits["maxReplicas"]
    await world.eventually(lambda: has(1), 120)
    assert load.failures == []
    assert load.total > 0
    await allow_code(world, world.namespace, None)


async def second_start_beside(world: World, pool: str) -> tuple[set[str], Object]:
    """Let a scikit-learn model without a format start from zero beside a free member of the pool.

    Return the names of the pool's free members before the start, and the start as the Model's status records it.
    """
    await world.deploy("line", storageUri=world.artifacts("line"), maxReplicas=1, scaleToZeroAfter="1s")
    await at_zero(world, "line-00001")
    await world.pool_has(pool, 1)
    free = {name_of(pod) for pod in await members(world, pool)}

    answer = await world.ask("line", body=ROWS)
    woken = await world.until("line", lambda found: _starts(found) == 2)

    assert answer.status == 200, answer.body
    return free, last_start(woken)


def _starts(found: Object) -> int:
    """How many starts are recorded."""
    return len((found.get("status") or {}).get("starts") or ())


def last_start(found: Object) -> Object:
    starts: list[Object] = (found.get("status") or {}).get("starts") or [{}]
    return starts[-1]
