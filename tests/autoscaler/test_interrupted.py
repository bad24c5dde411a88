"""Passes during which a revision is deleted, or the cluster rejects a write: no state leaks, and no step is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from autoscaler.metrics.stat import Sample
from autoscaler.types import Policy
from autoscaler.warmpool.starts import WarmStarts
from clusters.base.errors import Unavailable
from clusters.base.objects import POD_AUTOSCALER, SERVERLESS_SERVICE, Key, Kind, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.net.endpoints import Endpoint
from tests.autoscaler.world import KEY, REVISION_NAME, World, running
from tests.support.clock import SteppedClock
from tests.support.wait import eventually


@pytest.fixture
async def world(cluster: EmbeddedCluster) -> AsyncIterator[World]:
    async with running(World(cluster, SteppedClock())) as made:
        yield made


async def test_no_reading_is_kept_of_a_revision_that_goes_while_its_replicas_are_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample, asked = world.replicas.sample, asyncio.Event()

    async def answer_late(endpoint: Endpoint) -> Sample:
        if not asked.is_set():
            await world.cluster.delete(POD_AUTOSCALER, REVISION_NAME, "default")
            await eventually(lambda: KEY not in world.autoscaler.revisions())
            asked.set()
        return await sample(endpoint)

    monkeypatch.setattr(world.replicas, "sample", answer_late)
    await world.create_revision(Policy())
    await world.start_pod()
    await asked.wait()
    await world.pass_time(2.0)
    assert not world.autoscaler._collector.last(KEY)


async def test_members_are_adopted_though_knative_refuses_what_else_there_is_to_write(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, finished = world.cluster.create, asyncio.Event()

    async def refuse(kind: Kind, obj: Object, **options: Any) -> Object:
        if kind == SERVERLESS_SERVICE:
            raise Unavailable("failed calling webhook")
        return await create(kind, obj, **options)

    async def finish(_: WarmStarts, key: Key, deployment: Object) -> None:
        finished.set()

    monkeypatch.setattr(world.cluster, "create", refuse)
    monkeypatch.setattr(WarmStarts, "finish", finish)
    await world.create_revision(Policy())
    await eventually(finished.is_set)
