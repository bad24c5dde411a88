"""The data plane controller over a real cluster and a real Envoy."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clusters.clock import SystemClock
from clusters.embedded import dataplane
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.dataplane import DataPlane
from clusters.gateway.envoy import ENDPOINTS, ROUTES, Envoy
from clusters.gateway.errors import NotServing, Refused
from clusters.gateway.routes import Table
from clusters.objects import INGRESS, POD, POD_AUTOSCALER, SERVERLESS_SERVICE, Key, Object, generation_of, is_true
from tests.clusters.dataplane_stage import Activator, Stage, data_plane
from tests.clusters.gateway.backends import Backend, ask, backend, free_port
from tests.clusters.gateway.test_no_request_fails import Clients
from tests.support.wait import eventually

READY = {"NetworkConfigured": "True", "LoadBalancerReady": "True", "Ready": "True"}
DIRECT = "False:ActivatorEndpointsPopulated"
PROXIED = "True:ActivatorEndpointsPopulated"


@pytest.fixture
async def envoy(tmp_path: Path) -> AsyncIterator[Envoy]:
    made = Envoy(tmp_path / "gateway", "127.0.0.1", free_port(), SystemClock())
    await made.start()
    yield made
    await made.stop(grace=0.0)


@pytest.fixture
def activator() -> Activator:
    return Activator()


@pytest.fixture
async def holding() -> AsyncIterator[Backend]:
    """Where the activator takes requests."""
    async with backend("activator") as running:
        yield running


@pytest.fixture
async def one() -> AsyncIterator[Backend]:
    async with backend("one") as running:
        yield running


@pytest.fixture
async def two() -> AsyncIterator[Backend]:
    async with backend("two") as running:
        yield running


@pytest.fixture
def stage(cluster: EmbeddedCluster) -> Stage:
    return Stage(cluster)


@pytest.fixture
async def plane(
    cluster: EmbeddedCluster, envoy: Envoy, activator: Activator, holding: Backend
) -> AsyncIterator[DataPlane]:
    async with data_plane(cluster, envoy, activator, holding) as running:
        yield running


class Stuck:
    """An Envoy that does what the test says; counts how often it was asked."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.free = asyncio.Event()
        self.free.set()
        self.tables: list[Table] = []

    async def apply(self, table: Table) -> None:
        self.tables.append(table)
        await self.free.wait()
        if self.error is not None:
            raise self.error


async def answers(envoy: Envoy, host: str = "m.default.localhost") -> str:
    answer = await ask(envoy.port, host=host)
    return str(answer.json["backend"]) if answer.status == 200 else str(answer.status)


async def is_ready(stage: Stage, name: str = "m") -> bool:
    return is_true(await stage.get(INGRESS, name), "Ready")


async def test_an_ingress_is_ready_once_envoy_routes_it(plane: DataPlane, stage: Stage, envoy: Envoy) -> None:
    await stage.revision("m-00001")
    await stage.route("m", {"m-00001": 100})
    await eventually(lambda: is_ready(stage))
    assert await answers(envoy) == "activator"
    assert await stage.conditions(INGRESS, "m") == READY


async def test_each_new_split_is_ready_only_when_it_is_in_force(
    plane: DataPlane, stage: Stage, envoy: Envoy, one: Backend, two: Backend
) -> None:
    for number, server in enumerate((one, two), 1):
        await stage.revision(f"m-0000{number}", "Serve")
        await stage.pod(f"pod-{number}", f"m-0000{number}", server)
    for percent in (100, 0, 100, 0):
        await stage.route("m", {"m-00001": percent, "m-00002": 100 - percent})
        await eventually(lambda: is_ready(stage))
        assert await answers(envoy) == ("one" if percent else "two")


async def test_a_revision_is_served_directly_only_in_mode_serve_with_a_ready_pod(
    plane: DataPlane, stage: Stage, envoy: Envoy, activator: Activator, one: Backend
) -> None:
    """Proxy, no Pod → Serve, no Pod → Serve, Pod ready → Proxy, Pod ready → Proxy, Pod not ready."""

    async def stands(served_by: str, endpoints: str, activators: str, ports: list[int]) -> bool:
        found = await stage.conditions(SERVERLESS_SERVICE, "m-00001")
        return (
            found == {"EndpointsPopulated": endpoints, "Ready": endpoints, "ActivatorEndpointsPopulated": activators}
            and activator.endpoints("m-00001") == ports
            and await answers(envoy) == served_by
        )

    nobody, port = "Unknown:NoHealthyBackends", one.address.port
    await stage.revision("m-00001")
    await stage.route("m", {"m-00001": 100})
    await eventually(lambda: stands("activator", nobody, PROXIED, []))
    await stage.mode("m-00001", "Serve")
    await eventually(lambda: stands("activator", nobody, PROXIED, []))
    await stage.pod("pod", "m-00001", one)
    await eventually(lambda: stands("one", "True", DIRECT, [port]))
    await stage.mode("m-00001", "Proxy")
    await eventually(lambda: stands("activator", "True", PROXIED, [port]))
    await stage.ready("pod", ready=False)
    await eventually(lambda: stands("activator", nobody, PROXIED, []))


async def test_a_serverless_service_tells_its_services_and_the_wording_it_speaks_of(
    plane: DataPlane, stage: Stage
) -> None:
    await stage.revision("m-00001")
    await stage.mode("m-00001", "Serve")

    async def speaks_of_the_present() -> Object | None:
        service = await stage.get(SERVERLESS_SERVICE, "m-00001")
        status: Object = service.get("status", {})
        return status if status.get("observedGeneration") == generation_of(service) else None

    status = await eventually(speaks_of_the_present)
    assert status is not None
    assert (status["serviceName"], status["privateServiceName"]) == ("m-00001", "m-00001-private")


async def test_the_activator_hears_of_a_ready_pod_without_waiting_for_envoy(
    cluster: EmbeddedCluster, stage: Stage, activator: Activator, holding: Backend, one: Backend
) -> None:
    envoy = Stuck()
    async with data_plane(cluster, envoy, activator, holding):
        envoy.free.clear()
        await stage.revision("m-00001")
        await stage.pod("pod", "m-00001", one)
        await eventually(lambda: activator.endpoints("m-00001") == [one.address.port])
        assert await stage.conditions(SERVERLESS_SERVICE, "m-00001") == {}


async def test_the_activator_is_told_the_policy_and_its_changes(
    plane: DataPlane, stage: Stage, activator: Activator
) -> None:
    await stage.revision("m-00001", hold='{"limit": 7, "slots": 2, "timeout": 9.0}')
    key = Key("default", "m-00001")
    target = await eventually(lambda: activator.targets.get(key))
    assert target is not None
    assert (target.hold_limit, target.slots_per_endpoint, target.timeout) == (7, 2, 9.0)
    annotation = {"metadata": {"annotations": {"hold": '{"limit": 8, "slots": 2, "timeout": 9.0}'}}}
    await stage.cluster.patch(POD_AUTOSCALER, "m-00001", annotation, "default", manager="test")
    await eventually(lambda: activator.targets[key].hold_limit == 8)


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


async def test_a_pod_of_no_revision_is_released_at_once(plane: DataPlane) -> None:
    await plane.release({"metadata": {"name": "pod", "namespace": "default", "uid": "1"}})


async def test_an_ingress_that_names_an_unknown_revision_leaves_the_former_split(
    plane: DataPlane, stage: Stage, envoy: Envoy, one: Backend
) -> None:
    await stage.revision("m-00001")
    await stage.route("m", {"m-00001": 100})
    await eventually(lambda: is_ready(stage))
    await stage.route("m", {"m-00002": 100})
    await stage.route("other", {"m-00001": 100})
    await eventually(lambda: is_ready(stage, "other"))
    assert await answers(envoy) == "activator"
    assert not await is_ready(stage)
    await stage.revision("m-00002", "Serve")
    await stage.pod("pod", "m-00002", one)
    await eventually(lambda: is_ready(stage))
    assert await answers(envoy) == "one"


async def test_an_ingress_that_cannot_be_read_does_not_stop_the_others(
    plane: DataPlane, stage: Stage, envoy: Envoy
) -> None:
    await stage.revision("m-00001")
    bad = {"spec": {"rules": [{"hosts": ["a b"], "visibility": "ExternalIP", "http": {"paths": []}}]}}
    await stage.route("bad", {"m-00001": 100})
    await stage.cluster.patch(INGRESS, "bad", bad, "default", manager="test")
    await stage.route("m", {"m-00001": 100})
    await eventually(lambda: is_ready(stage))

    async def says_so() -> bool:
        return (await stage.conditions(INGRESS, "bad")).get("NetworkConfigured") == "False:InvalidIngress"

    await eventually(says_so)
    await stage.route("bad", {"m-00001": 100})
    await eventually(lambda: is_ready(stage, "bad"))


async def test_of_two_ingresses_with_one_host_the_elder_has_it_until_it_goes(
    plane: DataPlane, stage: Stage, envoy: Envoy, one: Backend
) -> None:
    await stage.revision("a-00001")
    await stage.revision("b-00001", "Serve")
    await stage.pod("pod", "b-00001", one)
    await stage.route("a", {"a-00001": 100})
    await eventually(lambda: is_ready(stage, "a"))
    await stage.route("b", {"b-00001": 100})
    stolen = {"spec": (await stage.get(INGRESS, "a"))["spec"] | {"rules": _rules_of("a", "b-00001")}}
    await stage.cluster.patch(INGRESS, "b", stolen, "default", manager="test")

    async def is_refused() -> bool:
        return (await stage.conditions(INGRESS, "b")).get("Ready") == "False:HostInUse"

    await eventually(is_refused)
    assert await answers(envoy, "a.default.localhost") == "activator"
    await stage.cluster.delete(INGRESS, "a", "default")
    await eventually(lambda: is_ready(stage, "b"))
    assert await answers(envoy, "a.default.localhost") == "one"


def _rules_of(host: str, revision: str) -> list[Object]:
    splits = [{"serviceName": revision, "serviceNamespace": "default", "percent": 100}]
    path = {"http": {"paths": [{"splits": splits}]}}
    return [{"hosts": [f"{host}.default.localhost"], "visibility": "ExternalIP", **path}]


async def test_what_is_deleted_is_forgotten(plane: DataPlane, stage: Stage, envoy: Envoy, activator: Activator) -> None:
    await stage.revision("m-00001")
    await stage.route("m", {"m-00001": 100})
    await eventually(lambda: is_ready(stage))
    for kind, name in ((INGRESS, "m"), (SERVERLESS_SERVICE, "m-00001")):
        await stage.cluster.delete(kind, name, "default")

    async def is_unknown() -> bool:
        return await answers(envoy) == "404"

    await eventually(is_unknown)
    await eventually(lambda: activator.targets == {})


async def test_nothing_is_written_when_nothing_changed(
    plane: DataPlane, stage: Stage, envoy: Envoy, one: Backend
) -> None:
    await stage.revision("m-00001", "Serve")
    await stage.pod("pod", "m-00001", one)
    await stage.route("m", {"m-00001": 100})

    async def settled() -> bool:
        return await is_ready(stage) and is_true(await stage.get(SERVERLESS_SERVICE, "m-00001"), "Ready")

    await eventually(settled)
    before = [await stage.get(INGRESS, "m"), await stage.get(SERVERLESS_SERVICE, "m-00001")]
    inodes = [(envoy.folder / name).stat().st_ino for name in (ROUTES, ENDPOINTS)]
    await stage.status(POD, "pod", {"phase": "Running"})
    await stage.revision("other-00001")
    await stage.route("other", {"other-00001": 100})
    await eventually(lambda: is_ready(stage, "other"))
    assert [await stage.get(INGRESS, "m"), await stage.get(SERVERLESS_SERVICE, "m-00001")] == before
    assert (envoy.folder / ENDPOINTS).stat().st_ino == inodes[1]


async def test_a_burst_of_changes_goes_into_few_updates(
    cluster: EmbeddedCluster, stage: Stage, activator: Activator, holding: Backend, one: Backend
) -> None:
    envoy = Stuck()
    async with data_plane(cluster, envoy, activator, holding):
        envoy.free.clear()
        started = len(envoy.tables)
        await stage.revision("m-00001", "Serve")
        for number in range(30):
            await stage.pod(f"pod-{number}", "m-00001", one)
        await eventually(lambda: len(activator.endpoints("m-00001")) == 30)
        assert len(envoy.tables) <= started + 1
        envoy.free.set()
        await eventually(lambda: len(envoy.tables[-1].backends.get(Key("default", "m-00001"), ())) == 30)
        assert len(envoy.tables) <= started + 2


@pytest.mark.parametrize("error", [NotServing("Envoy does not answer"), Refused("Envoy refused it")])
async def test_an_ingress_says_why_it_is_not_in_force(
    cluster: EmbeddedCluster, stage: Stage, activator: Activator, holding: Backend, error: Exception
) -> None:
    envoy = Stuck()
    async with data_plane(cluster, envoy, activator, holding):
        envoy.error = error
        await stage.revision("m-00001")
        await stage.route("m", {"m-00001": 100})

        async def says_why() -> bool:
            return (await stage.conditions(INGRESS, "m")).get("Ready") == "Unknown:GatewayNotReady"

        await eventually(says_why)
        envoy.error = None
        await stage.revision("m-00002")
        await eventually(lambda: is_ready(stage))


async def test_an_adopted_envoy_keeps_its_files_until_all_objects_are_known(
    cluster: EmbeddedCluster, stage: Stage, envoy: Envoy, activator: Activator, holding: Backend, one: Backend
) -> None:
    async with data_plane(cluster, envoy, activator, holding):
        await stage.revision("m-00001", "Serve")
        await stage.pod("pod", "m-00001", one)
        await stage.route("m", {"m-00001": 100})
        await eventually(lambda: is_ready(stage))
    files = {name: (envoy.folder / name).stat().st_ino for name in (ROUTES, ENDPOINTS)}
    await envoy.close()
    successor = Envoy(envoy.folder, envoy.host, envoy.port, SystemClock())
    assert await successor.start()
    async with data_plane(cluster, successor, activator, holding, synced=False):
        assert await answers(envoy) == "one"
    async with data_plane(cluster, successor, activator, holding):
        assert await answers(envoy) == "one"
    assert {name: (envoy.folder / name).stat().st_ino for name in files} == files, "made anew, the same to the byte"
    assert activator.retained[-1] == {Key("default", "m-00001")}
    await successor.close()


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
