"""What the judge counts, on a platform: callers do not decide a rollout, and a version that hangs is not promoted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import aiohttp
import pytest

from clusters.base.objects import POD, Object
from serving.reconciler.rollout.state import rollout_of
from tests.scenarios.steady import steadily
from tests.scenarios.test_formats import allow_code
from tests.scenarios.test_rollouts import QUICK, rollout_is
from tests.scenarios.world import World

pytestmark = pytest.mark.timeout(300)

MALFORMED: Object = {"inputs": "none"}
FORGED = {"Knative-Serving-Default-Route": "true", "Knodel-Internal-Split": "true"}
"""Headers that only the platform may set."""
HELD: dict[str, Any] = {
    "steps": [50, 100], "stepDuration": "3s", "judge": {"interval": "1s", "maxLatencyRatio": 100}
}  # fmt: skip
"""A rollout that passes a step by evidence only."""
WITHIN = 120.0
"""s until the judge has seen enough requests."""


def flower(length: float) -> Object:
    """An inference of `brisk`; `stuck` hangs on a long one."""
    values = [length, 3.5, 1.4, 0.2]
    return {"inputs": [{"name": "input-0", "datatype": "FP64", "shape": [1, 4], "data": values}]}


async def send_tagged(world: World, name: str, tag: str, body: Object, count: int) -> None:
    """Requests to one version, by the tag's host and by the tag's header, with headers of the platform's forged."""
    path = f"/v2/models/{name}/infer"
    for host, headers in ((f"{tag}-{name}", FORGED), (name, FORGED | {"Knative-Serving-Tag": tag})):
        sent = {"Host": world.host(host), **headers}
        for _ in range(count // 2):
            await world.send("POST", path, sent, body)


async def has_restarted(world: World, revision: str) -> bool:
    """Whether the replica of the revision serves again after its process ended."""
    pods = (await world.cluster.list(POD, world.namespace, f"serving.knative.dev/revision={revision}")).items
    containers = [one for pod in pods for one in (pod.get("status") or {}).get("containerStatuses", ())]
    return any(one.get("restartCount", 0) > 0 and one.get("ready") for one in containers)


async def ended(world: World, name: str) -> str:
    """The phase in which the rollout ends."""

    def over(found: Object) -> bool:
        state = rollout_of(found)
        return state is not None and not state.runs

    state = rollout_of(await world.until(name, over, within=WITHIN))
    assert state is not None
    return f"{state.phase}: {state.reasons}"


async def test_malformed_requests_to_the_candidate_do_not_take_a_good_version_back(world: World) -> None:
    await world.deploy("judged", storageUri=world.artifacts("double"), version="1", minReplicas=1, rollout=HELD)
    async with world.under_load("judged"):
        await world.deploy("judged", storageUri=world.artifacts("triple"), version="2", wait=False)
        await rollout_is(world, "judged", "Progressing", 50)
        await send_tagged(world, "judged", "candidate", MALFORMED, 120)
        assert (await ended(world, "judged")).startswith("Promoted")


async def test_callers_who_choose_versions_do_not_promote_one_that_fails_every_fifth_request(world: World) -> None:
    await allow_code(world, world.namespace, "true")
    await world.deploy(
        "fails", storageUri=world.artifacts("brisk"), modelFormat="python", minReplicas=1, rollout=HELD
    )  # fmt: skip
    async with steadily(lambda: world.ask("fails", body=flower(5.1)), 30.0):
        await world.deploy("fails", storageUri=world.artifacts("flaky"), wait=False)
        await rollout_is(world, "fails", "Progressing", 50)
        async with asyncio.TaskGroup() as group:
            group.create_task(send_tagged(world, "fails", "candidate", flower(5.1), 120))
            group.create_task(send_tagged(world, "fails", "stable", MALFORMED, 120))
        assert (await ended(world, "fails")).startswith("RolledBack")


async def test_a_tagged_request_that_ends_the_process_does_not_take_a_good_version_back(world: World) -> None:
    await allow_code(world, world.namespace, "true")
    mortal: dict[str, Any] = {"storageUri": world.artifacts("mortal"), "modelFormat": "python", "minReplicas": 1}
    await world.deploy("mortal", **mortal, version="1", rollout=HELD)
    await world.deploy("mortal", **mortal, version="2", wait=False)
    await rollout_is(world, "mortal", "Progressing", 50)

    for number, tag in enumerate(("stable", "candidate"), start=1):
        with suppress(aiohttp.ClientError):
            sent = {"Host": world.host(f"{tag}-mortal"), **FORGED}
            await world.send("POST", "/v2/models/mortal/infer", sent, flower(100.0))
        await world.eventually(partial(has_restarted, world, f"mortal-{number:05d}"), WITHIN)
    async with steadily(lambda: world.ask("mortal", body=flower(5.1)), 30.0):
        assert (await ended(world, "mortal")).startswith("Promoted")


async def test_a_version_that_hangs_is_not_promoted_for_want_of_answers(world: World) -> None:
    await allow_code(world, world.namespace, "true")
    spec: dict[str, Any] = {"modelFormat": "python", "minReplicas": 1, "rollout": QUICK}
    await world.deploy("hangs", storageUri=world.artifacts("brisk"), **spec)
    async with patiently(world, "hangs", flower(100.0)):
        await world.deploy("hangs", storageUri=world.artifacts("stuck"), wait=False)
        assert (await ended(world, "hangs")).startswith("RolledBack")


@asynccontextmanager
async def patiently(world: World, name: str, body: Object) -> AsyncIterator[None]:
    """Ten requests a second, of callers that wait for their answers until the block ends."""
    waiting: set[asyncio.Task[Any]] = set()

    async def one() -> None:
        try:
            await world.ask(name, body=body)
        except aiohttp.ClientError:
            return

    async def all_of_them() -> None:
        while True:
            task = asyncio.ensure_future(one())
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            await asyncio.sleep(0.1)

    sender = asyncio.ensure_future(all_of_them())
    try:
        yield
    finally:
        sender.cancel()
        for task in waiting:
            task.cancel()
        await asyncio.gather(sender, *waiting, return_exceptions=True)
