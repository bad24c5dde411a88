"""Invalid objects, an Envoy that fails, and a restarted control plane."""

from __future__ import annotations

import pytest

from clusters.base.clock import SystemClock
from clusters.base.objects import INGRESS, POD, SERVERLESS_SERVICE, Key, Object, is_true
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.dataplane.controller import DataPlane
from clusters.gateway.envoy import ENDPOINTS, ROUTES, Envoy
from clusters.gateway.errors import ConfigurationRejected, NotServing
from tests.clusters.dataplane.looks import Stuck, answers, is_ready
from tests.clusters.dataplane.stage import Activator, Stage, data_plane
from tests.clusters.gateway.backends import Backend
from tests.support.wait import eventually


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

    async def served() -> bool:
        return await answers(envoy) == "one"

    await eventually(served)  # the Pod may have come a moment after the revision


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


@pytest.mark.parametrize("error", [NotServing("Envoy does not answer"), ConfigurationRejected("Envoy refused it")])
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


def _rules_of(host: str, revision: str) -> list[Object]:
    splits = [{"serviceName": revision, "serviceNamespace": "default", "percent": 100}]
    path = {"http": {"paths": [{"splits": splits}]}}
    return [{"hosts": [f"{host}.default.localhost"], "visibility": "ExternalIP", **path}]
