"""Versions that are RayServices by KubeRay: a traffic split, and back; a service of another namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import CONFIG_MAP, MODEL, condition_of, is_true
from serving.makers.pod_spec import server_settings
from serving.types.settings.settings import Settings
from tests.cluster.place import MANAGER, PATIENCE, SMALL
from tests.cluster.rayservice import RAY_SERVICE, code, ray_service, url_of
from tests.scenarios.world import World
from tests.support.artifacts import ArtifactServer
from tests.support.wait import eventually

pytestmark = pytest.mark.timeout(600)

READY_WITHIN = 240.0  # s; a head takes 25 s of processor time
SPEC: dict[str, Any] = {"modelFormat": "ray", "minReplicas": 1, "containerConcurrency": 8}


@pytest.fixture
async def world(cluster: Cluster, installed: Settings, artifacts: ArtifactServer) -> AsyncIterator[World]:
    """The installed platform."""
    gateway = installed.gateway
    address = f"http://{gateway.address}:{gateway.port}"
    made = World(cluster, address, gateway.domain, artifacts.uri, defaults=SMALL, patience=PATIENCE)
    yield made
    await made.sweep()
    await made.close()


@pytest.fixture
async def services(cluster: Cluster, namespace: str, installed: Settings) -> AsyncIterator[list[str]]:
    """The names of two RayServices that serve, versions 1 and 2 of the same application."""
    try:
        await cluster.list(RAY_SERVICE, namespace)
    except NotFound:
        pytest.skip("no KubeRay here: on the testbed `python -m tests.testbed up --knodel --ray`")
    image = server_settings("", "ray", installed).image
    await cluster.create(CONFIG_MAP, code("ranker", namespace), manager=MANAGER)
    names = ["ranker-1", "ranker-2"]
    for name in names:
        wanted = ray_service(name, namespace, name.rpartition("-")[2], image, "ranker")
        await cluster.create(RAY_SERVICE, wanted, manager=MANAGER)

    async def serve() -> bool:
        return all([is_true(await cluster.get(RAY_SERVICE, name, namespace), "Ready") for name in names])

    await eventually(serve, READY_WITHIN)
    yield names
    for name in names:
        await cluster.delete(RAY_SERVICE, name, namespace)


async def test_traffic_is_split_between_two_ray_services(world: World, namespace: str, services: list[str]) -> None:
    first, second = services

    async def versions(count: int) -> Counter[tuple[str, str]]:
        headers = {"Host": world.host("ranker", namespace)}
        answers = [await world.send("POST", "/x?a=b", headers, {"n": 1}) for _ in range(count)]
        assert {answer.status for answer in answers} == {200}, answers
        assert {(answer.body["path"], answer.body["body"]) for answer in answers} == {("/rank/x", '{"n": 1}')}
        return Counter((answer.revision, answer.body["version"]) for answer in answers)

    await world.deploy("ranker", namespace=namespace, ray={"service": url_of(first)}, version="1", **SPEC)
    assert set(await versions(3)) == {("ranker-00001", "1")}
    await world.deploy(
        "ranker", namespace=namespace, ray={"service": url_of(second)}, version="2", canaryTrafficPercent=30
    )
    await world.carries("ranker", {"ranker-00001": 70, "ranker-00002": 30}, namespace)
    seen = await versions(100)
    assert set(seen) == {("ranker-00001", "1"), ("ranker-00002", "2")}
    assert 10 <= seen["ranker-00002", "2"] <= 50
    found = await world.deploy(
        "ranker", namespace=namespace, traffic=[{"revision": "ranker-00001", "percent": 100}], canaryTrafficPercent=None
    )
    await world.carries("ranker", {"ranker-00001": 100}, namespace)
    assert set(await versions(10)) == {("ranker-00001", "1")}
    uris = [entry["storageUri"] for entry in found["status"]["history"]]
    assert uris == [f"ray+{url_of(first)}", f"ray+{url_of(second)}"]


async def test_a_service_of_another_namespace_is_refused(cluster: Cluster, world: World, namespace: str) -> None:
    service = "http://knodel-eventing.knodel-system.svc"
    await world.deploy("foreign", namespace=namespace, wait=False, ray={"service": service}, **SPEC)

    async def refusal() -> str:
        found = await cluster.get(MODEL, "foreign", namespace)
        return str((condition_of(found, "Ready") or {}).get("message", ""))

    async def refused() -> bool:
        return "private or reserved" in await refusal()

    await eventually(refused, 120.0)
    assert "knodel-eventing" in await refusal()
