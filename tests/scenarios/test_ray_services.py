"""Versions that are a Ray Serve elsewhere: a split, a judged rollout, zero, a service that is gone for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from clusters.base.objects import POD, Object, name_of
from serving.reconciler.rollout.state import rollout_of
from tests.scenarios.answers import Answer
from tests.scenarios.steady import steadily
from tests.scenarios.world import World
from tests.support.ray_service import Application, ray_service

pytestmark = pytest.mark.timeout(300)

SPEC: dict[str, Any] = {"modelFormat": "ray", "containerConcurrency": 8, "minReplicas": 1}
JUDGED: dict[str, Any] = {"steps": [50, 100], "stepDuration": "3s", "judge": {"interval": "1s"}}


@contextmanager
def services(world: World, *applications: Application) -> Iterator[list[Object]]:
    """Serve the applications where replicas reach them; the value has the field `ray` of a Model for each."""
    with ray_service(applications[0], world.address) as url:
        if not applications[1:]:
            yield [{"service": url}]
            return
        with services(world, *applications[1:]) as more:
            yield [{"service": url}, *more]


async def ask(world: World, name: str) -> Answer:
    return await world.send("POST", "/x", {"Host": world.host(name)}, {"n": 1})


async def test_traffic_is_split_between_two_services_and_goes_back(world: World) -> None:
    with services(world, Application("1"), Application("2")) as (first, second):
        await world.deploy("twofold", ray=first, version="1", **SPEC)
        await world.deploy("twofold", ray=second, version="2", canaryTrafficPercent=30)
        await world.carries("twofold", {"twofold-00001": 70, "twofold-00002": 30})
        answers = [await ask(world, "twofold") for _ in range(100)]
        assert {answer.status for answer in answers} == {200}
        seen = Counter((answer.revision, answer.body["version"]) for answer in answers)
        assert set(seen) == {("twofold-00001", "1"), ("twofold-00002", "2")}
        assert 10 <= seen["twofold-00002", "2"] <= 50
        assert answers[0].body["path"] == "/rank/x"
        back = [{"revision": "twofold-00001", "percent": 100}]
        found = await world.deploy("twofold", traffic=back, canaryTrafficPercent=None)
        await world.carries("twofold", {"twofold-00001": 100})
        uris = [entry["storageUri"] for entry in found["status"]["history"]]
        assert uris == [f"ray+{one['service']}" for one in (first, second)]


async def test_a_service_with_errors_is_rolled_back(world: World) -> None:
    with services(world, Application("1"), Application("2", status=500)) as (first, second):
        await world.deploy("failing", ray=first, rollout=JUDGED, **SPEC)

        def ended(found: Object) -> bool:
            state = rollout_of(found)
            return state is not None and not state.runs

        async with steadily(lambda: ask(world, "failing"), 20.0):
            await world.deploy("failing", ray=second, wait=False)
            state = rollout_of(await world.until("failing", ended, within=120.0))
        assert state is not None
        assert state.phase == "RolledBack", state
        await world.carries("failing", {"failing-00001": 100})


async def test_a_service_is_asked_again_after_zero_and_after_it_was_gone(world: World) -> None:
    application = Application("1")
    with services(world, application) as (first,):
        await world.deploy("resting", ray=first, **SPEC | {"minReplicas": 0, "scaleToZeroAfter": "6s"})
        assert (await ask(world, "resting")).status == 200

        async def at_zero() -> bool:
            pods = (await world.cluster.list(POD, world.namespace)).items
            return not any(name_of(pod).startswith("resting-0") for pod in pods)

        await world.eventually(at_zero, 120.0)
        assert (await ask(world, "resting")).status == 200
        application.healthy = False

        async def answers(status: int) -> bool:
            return (await ask(world, "resting")).status == status

        await world.eventually(lambda: answers(503), 60.0)
        application.healthy = True
        await world.eventually(lambda: answers(200), 60.0)
