"""The routes of Envoy and the targets of the activator follow the cluster's objects, and so do their statuses."""

from __future__ import annotations

import time

from clusters.base.objects import (
    INGRESS,
    LABEL_REVISION,
    MODEL,
    POD,
    POD_AUTOSCALER,
    SERVERLESS_SERVICE,
    Key,
    Object,
    generation_of,
)
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.dataplane.controller import DataPlane
from clusters.embedded.dataplane.routing import cannot_start
from clusters.gateway.envoy import Envoy
from clusters.gateway.token import ACTIVATOR, HEADER
from tests.clusters.dataplane.looks import DIRECT, PROXIED, READY, Stuck, answers, is_ready
from tests.clusters.dataplane.stage import TOKENS, Activator, Stage, data_plane
from tests.clusters.gateway.backends import Backend, ask
from tests.support.wait import eventually


async def test_an_ingress_is_ready_once_envoy_routes_it(plane: DataPlane, stage: Stage, envoy: Envoy) -> None:
    await stage.revision("m-00001")
    await stage.route("m", {"m-00001": 100})
    await eventually(lambda: is_ready(stage))
    assert await answers(envoy) == "activator"
    assert await stage.conditions(INGRESS, "m") == READY


async def test_requests_bear_the_token_of_the_pod_or_the_activator_that_gets_them(
    plane: DataPlane, stage: Stage, envoy: Envoy, activator: Activator, one: Backend, holding: Backend
) -> None:
    await stage.revision("m-00001")
    pod = await stage.pod("pod", "m-00001", one)
    token = TOKENS.of(pod["metadata"]["uid"])
    await stage.route("m", {"m-00001": 100})
    await eventually(lambda: is_ready(stage))
    await eventually(lambda: activator.endpoints("m-00001"))
    assert await answers(envoy) == "activator"
    assert [one.token for one in activator.targets[Key("default", "m-00001")].endpoints] == [token]
    await stage.mode("m-00001", "Serve")

    async def direct() -> bool:
        return await answers(envoy) == "one"

    await eventually(direct)
    assert [to.requests[-1].headers.getall(HEADER) for to in (holding, one)] == [[TOKENS.of(ACTIVATOR)], [token]]


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


async def test_a_ready_pod_that_gets_a_revisions_label_is_an_endpoint_within_milliseconds(
    plane: DataPlane, stage: Stage, activator: Activator, one: Backend
) -> None:
    """The second step of a warm start: patch labels, and the activator may send."""

    async def seconds(number: int) -> float:
        revision, pod = f"m{number}-00001", f"pod-{number}"
        await stage.revision(revision)
        await eventually(lambda: Key("default", revision) in activator.targets)
        await stage.pod(pod, "", one)
        began = time.perf_counter()
        patch = {"metadata": {"labels": {LABEL_REVISION: revision}}}
        await stage.cluster.patch(POD, pod, patch, "default", manager="test")
        await eventually(lambda: activator.endpoints(revision) == [one.address.port])
        return time.perf_counter() - began

    took = [await seconds(number) for number in range(10)]
    assert min(took) < 0.02  # the best of ten, for the machine is shared


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


def crashing(exit_code: int = 1, message: str = "cannot load m.onnx", reason: str = "CrashLoopBackOff") -> Object:
    """Return the status of a Pod whose process ended and will be restarted."""
    ended = {"exitCode": exit_code, "message": message}
    return {"containerStatuses": [{"state": {"waiting": {"reason": reason}}, "lastState": {"terminated": ended}}]}


async def test_a_revision_is_broken_while_each_of_its_pods_fails_to_start_and_says_why(
    plane: DataPlane, stage: Stage, activator: Activator, one: Backend, two: Backend
) -> None:
    def broken() -> bool:
        return activator.targets[Key("default", "m-00001")].broken

    await stage.revision("m-00001", "Serve")
    await stage.pod("a", "m-00001", one, ready=False)
    await stage.pod("b", "m-00001", two, ready=False)
    await stage.status(POD, "a", crashing())
    await eventually(lambda: activator.targets and not broken())
    await stage.status(POD, "b", crashing())
    await eventually(broken)
    await stage.status(POD, "b", {"containerStatuses": [{"state": {"running": {}}}]})
    await eventually(lambda: not broken())


def test_a_pod_that_was_killed_or_starts_anew_may_start() -> None:
    assert cannot_start({"status": crashing()})
    assert not cannot_start({"status": crashing(137, "")})
    assert not cannot_start({"status": crashing(reason="ContainerCreating")})
    assert not cannot_start({"status": crashing(0)})
    assert not cannot_start({})


async def test_the_list_of_language_models_follows_the_models_and_survives_the_control_plane(
    cluster: EmbeddedCluster, envoy: Envoy, activator: Activator, holding: Backend, stage: Stage
) -> None:
    async def listed() -> list[str]:
        answer = await ask(envoy.port, "/openai/v1/models", "127.0.0.1")
        return [one["id"] for one in answer.json["data"]] if answer.status == 200 else []

    async def becomes(*names: str) -> None:
        async def is_so() -> bool:
            return await listed() == list(names)

        await eventually(is_so)

    def model(name: str, spec: Object) -> Object:
        metadata = {"name": name, "namespace": "default"}
        return {"apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": metadata, "spec": spec}

    async with data_plane(cluster, envoy, activator, holding):
        await stage.revision("m-00001")
        await stage.route("m", {"m-00001": 100})
        await eventually(lambda: is_ready(stage))
        await cluster.create(MODEL, model("m", {"storageUri": "pvc://a/b"}), manager="test")
        await cluster.create(MODEL, model("unrouted", {"modelFormat": "gguf"}), manager="test")
        await becomes()
        await stage.status(MODEL, "m", {"modelFormat": "gguf"})
        await becomes("m")
        adapters = {"spec": {"llm": {"adapters": [{"name": "legal"}]}}}
        await cluster.patch(MODEL, "m", adapters, "default", manager="test")
        await becomes("m", "m:legal")
    assert await listed() == ["m", "m:legal"]
    async with data_plane(cluster, envoy, activator, holding):
        assert await listed() == ["m", "m:legal"]
        await cluster.delete(MODEL, "m", "default")
        await becomes()
