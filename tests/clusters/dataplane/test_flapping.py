"""A Pod whose readiness changes often: it gets no request while it is not ready, and no request fails."""

from __future__ import annotations

import asyncio

import pytest

from clusters.base.objects import SERVERLESS_SERVICE
from clusters.embedded.dataplane.controller import DataPlane
from clusters.gateway.envoy import Envoy
from tests.clusters.dataplane.looks import DIRECT, PROXIED, answers, is_ready
from tests.clusters.dataplane.stage import Stage
from tests.clusters.gateway.backends import Backend
from tests.clusters.gateway.test_no_request_fails import Clients
from tests.support.wait import eventually

REVISION = "m-00001"
SWINGS = 8
REQUESTS = 10


@pytest.mark.fault("I7")
async def test_a_pod_that_is_not_ready_gets_no_request_however_often_that_changes(
    plane: DataPlane, stage: Stage, envoy: Envoy, holding: Backend, one: Backend
) -> None:
    await stage.revision(REVISION, "Serve")
    await stage.pod("pod", REVISION, one)
    await stage.route("m", {REVISION: 100})
    await eventually(lambda: is_ready(stage))
    clients = Clients(envoy.port)
    running = asyncio.create_task(clients.run())

    for _ in range(SWINGS):
        await stage.ready("pod", ready=False)
        await eventually(lambda: _says(stage, PROXIED))
        reached = len(one.requests)
        assert {await answers(envoy) for _ in range(REQUESTS)} == {"activator"}
        assert len(one.requests) == reached
        await stage.ready("pod", ready=True)
        await eventually(lambda: _says(stage, DIRECT))
        assert {await answers(envoy) for _ in range(REQUESTS)} == {"one"}

    clients.stop()
    await running
    assert set(clients.answers) == {200}


async def _says(stage: Stage, proxied: str) -> bool:
    """What the ServerlessService says is in force."""
    found = await stage.conditions(SERVERLESS_SERVICE, REVISION)
    return found.get("ActivatorEndpointsPopulated") == proxied
