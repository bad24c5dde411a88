"""A Pod is removed from routing before it stops, and no request is lost."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from clusters.base.objects import POD, SERVERLESS_SERVICE
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.dataplane import controller as dataplane
from clusters.embedded.dataplane.controller import DataPlane
from clusters.gateway.envoy import Envoy
from tests.clusters.dataplane.looks import PROXIED, Stuck, answers, is_ready
from tests.clusters.dataplane.stage import Activator, Stage, data_plane
from tests.clusters.gateway.backends import Backend, backend
from tests.clusters.gateway.test_no_request_fails import Clients
from tests.support.wait import eventually


@pytest.mark.fault("I7")
async def test_a_released_pod_is_sent_nothing_even_while_it_says_that_it_is_ready(
    plane: DataPlane, stage: Stage, envoy: Envoy, activator: Activator, one: Backend
) -> None:
    await stage.revision("m-00001", "Serve")
    pod = await stage.pod("pod", "m-00001", one)
    await stage.route("m", {"m-00001": 100})
    await eventually(lambda: is_ready(stage))
    assert await answers(envoy) == "one"
    await plane.release(pod)
    assert await answers(envoy) == "activator"
    assert activator.endpoints("m-00001") == []


async def test_a_release_ends_even_when_envoy_does_not_answer(
    cluster: EmbeddedCluster,
    stage: Stage,
    activator: Activator,
    holding: Backend,
    one: Backend,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(dataplane, "RELEASE_TIMEOUT", 0.05)
    envoy = Stuck()
    async with data_plane(cluster, envoy, activator, holding) as plane:
        envoy.free.clear()
        await stage.revision("m-00001", "Serve")
        await plane.release(await stage.pod("pod", "m-00001", one))
    assert "pod default/pod may still be sent requests" in caplog.text


async def test_a_release_waits_for_the_requests_that_the_pod_still_has(
    plane: DataPlane, stage: Stage, envoy: Envoy, one: Backend
) -> None:
    await stage.revision("m-00001", "Serve")
    pod = await stage.pod("pod", "m-00001", one)
    await stage.route("m", {"m-00001": 100})
    await eventually(lambda: is_ready(stage))
    one.hold.clear()
    asked = asyncio.create_task(answers(envoy))
    await one.arrived.wait()
    await stage.ready("pod", ready=False)
    releasing = asyncio.create_task(plane.release(pod))

    async def is_proxied() -> bool:
        found = await stage.conditions(SERVERLESS_SERVICE, "m-00001")
        return found.get("ActivatorEndpointsPopulated") == PROXIED

    await eventually(is_proxied)
    assert await answers(envoy) == "activator"
    assert await envoy.requests_at(one.address) == 1
    assert not releasing.done()
    one.hold.set()
    await releasing
    assert await envoy.requests_at(one.address) == 0
    assert await asked == "one"


async def test_a_release_does_not_wait_for_a_long_request(
    cluster: EmbeddedCluster,
    stage: Stage,
    activator: Activator,
    holding: Backend,
    one: Backend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dataplane, "QUIET_TIMEOUT", 0.02)
    envoy = Stuck()
    async with data_plane(cluster, envoy, activator, holding) as plane:
        await stage.revision("m-00001", "Serve")
        envoy.requests = [1] * 1000
        await plane.release(await stage.pod("pod", "m-00001", one))
    assert envoy.requests, "it did not wait for all"


async def test_a_pod_of_no_revision_is_released_at_once(plane: DataPlane) -> None:
    async with asyncio.timeout(dataplane.RELEASE_TIMEOUT / 5):
        await plane.release({"metadata": {"name": "pod", "namespace": "default", "uid": "1"}})


@pytest.mark.fault("I8")
async def test_no_request_fails_while_revisions_scale_and_splits_move(
    plane: DataPlane, stage: Stage, envoy: Envoy, activator: Activator
) -> None:
    names = ["m-00001", "m-00002"]
    for name in names:
        await stage.revision(name, "Serve")
    await stage.route("m", {names[0]: 100})
    await eventually(lambda: is_ready(stage))
    clients = Clients(envoy.port)
    running = asyncio.create_task(clients.run())
    for number in range(20):
        name = names[number % 2]
        async with backend(f"pod-{number}") as server:
            pod = await stage.pod(f"pod-{number}", name, server)
            await stage.route("m", {names[0]: number * 5, names[1]: 100 - number * 5})
            await stage.mode(name, "Proxy" if number % 5 == 0 else "Serve")
            await eventually(lambda: is_ready(stage))
            await stage.cluster.delete(POD, f"pod-{number}", "default")
            await plane.release(pod)
        await stage.cluster.delete(POD, f"pod-{number}", "default", grace_period=0)
    clients.stop()
    await running
    assert set(clients.answers) == {200}


async def test_a_pod_is_in_force_and_out_again_within_milliseconds(
    plane: DataPlane, stage: Stage, envoy: Envoy, one: Backend, two: Backend
) -> None:
    await stage.revision("m-00001", "Serve")
    await stage.pod("pod", "m-00001", one)
    await stage.route("m", {"m-00001": 100})
    await eventually(lambda: is_ready(stage))
    seconds = []
    for number in range(10):
        pod = await stage.pod(f"pod-{number}", "m-00001", two)
        started = time.perf_counter()
        await plane.release(pod)
        seconds.append(time.perf_counter() - started)
    logging.getLogger(__name__).info("release: %s ms", [round(one * 1000, 1) for one in seconds])
    assert sorted(seconds)[len(seconds) // 2] < 0.1, "2 ms on a quiet machine"
