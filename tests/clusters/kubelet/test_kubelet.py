"""Pods as processes: start, environment, volumes, limits, readiness, rejection."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from clusters.base.identity import PROC
from clusters.base.objects import ANNOTATION_PORTS, POD, SECRET, Object, condition_of
from clusters.base.quantities import MEMORY_LIMIT
from clusters.embedded.kubelet import ContainerImage, find_leftovers
from clusters.embedded.kubelet.process.folders import Folders, log_path
from clusters.gateway.token import VARIABLE
from clusters.net.endpoints import endpoint_of, is_ready
from tests.clusters.kubelet.nodes import (
    NAMESPACE,
    READINESS,
    TOKENS,
    Nodes,
    ended,
    environment_of,
    get,
    make_pod,
    process_of,
    until,
)
from tests.support.wait import eventually

IMAGE_ENV = {"PYTHONPATH": str(Path(__file__).parents[3])}


async def test_a_pod_becomes_a_ready_process(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a"))

    pod = await nodes.ready("a")

    status = pod["status"]
    assert (status["phase"], status["podIP"], status["hostIP"]) == ("Running", "127.0.0.1", "127.0.0.1")
    assert pod["spec"]["nodeName"] == "embedded"
    container = status["containerStatuses"][0]
    assert (container["name"], container["image"], container["restartCount"]) == ("server", "server", 0)
    assert container["ready"] and container["started"] and "running" in container["state"]
    for condition in ("PodScheduled", "Initialized", "ContainersReady", "Ready"):
        assert condition_of(pod, condition)["status"] == "True"  # type: ignore[index]
    pid, _, folder = (await get(pod, "/")).partition(" ")
    assert int(pid) == process_of(pod).pid
    assert folder == str(Folders(nodes.state).scratch(pod["metadata"]["uid"]))


async def test_the_process_gets_its_ports_and_its_containers_environment(nodes: Nodes) -> None:
    await nodes.start()
    ports = [{"name": "user-port", "containerPort": 8000}]
    env = [
        {"name": "A", "value": "one"},
        {"name": "B", "value": "$(A)-$(HOSTNAME)"},
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    resources = {"limits": {"memory": "2Gi"}}
    await nodes.create(make_pod("a", "--port=$(PORT)", container={"env": env, "ports": ports, "resources": resources}))

    pod = await nodes.ready("a")

    real = json.loads(pod["metadata"]["annotations"][ANNOTATION_PORTS])
    assert set(real) == {"8000", "9095"}
    endpoint = endpoint_of(pod)
    assert endpoint is not None
    assert (endpoint.port, endpoint.management_port) == (real["8000"], real["9095"])
    environment = environment_of(process_of(pod))
    assert environment["PORT"] == str(real["8000"])
    assert environment["MANAGEMENT_PORT"] == str(real["9095"])
    assert (environment["HOST"], environment["HOSTNAME"], environment["NAME"]) == ("127.0.0.1", "a", "a")

    assert environment[MEMORY_LIMIT] == str(2 << 30)
    assert (environment["A"], environment["B"]) == ("one", "one-$(HOSTNAME)")
    assert f"--port={real['8000']}" in (PROC / str(process_of(pod).pid) / "cmdline").read_text().split("\0")
    assert "started" in log_path(nodes.state, pod).read_text()


async def test_each_pod_keeps_its_own_gateway_token(nodes: Nodes) -> None:
    await nodes.start()
    env = [{"name": VARIABLE, "value": "chosen by the Model"}]
    for name in ("a", "b"):
        await nodes.create(make_pod(name, container={"env": env}))
    pods = [await nodes.ready(name) for name in ("a", "b")]

    tokens = [environment_of(process_of(pod))[VARIABLE] for pod in pods]
    assert tokens == [TOKENS.of(pod["metadata"]["uid"]) for pod in pods]
    assert len(set(tokens)) == 2
    assert all(token not in json.dumps(pod) for token, pod in zip(tokens, pods, strict=True))

    os.kill(process_of(pods[0]).pid, signal.SIGKILL)
    await until(lambda: restarted(nodes, "a"))
    assert environment_of(process_of(await nodes.ready("a")))[VARIABLE] == tokens[0]


async def test_a_container_starts_once_the_secret_of_a_variable_exists(nodes: Nodes) -> None:
    await nodes.start()
    source = {"secretKeyRef": {"name": "keys", "key": "token"}}
    await nodes.create(make_pod("a", container={"env": [{"name": "TOKEN", "valueFrom": source}]}))

    async def waits() -> bool:
        waiting = (await nodes.container("a")).get("state", {}).get("waiting", {})
        return bool(waiting.get("reason") == "CreateContainerConfigError" and "keys" in waiting["message"])

    await until(waits)
    secret = {"metadata": {"name": "keys", "namespace": NAMESPACE}, "data": {"token": "czNjcmV0"}}
    await nodes.cluster.create(SECRET, secret, manager="test")

    pod = await nodes.ready("a")

    assert environment_of(process_of(pod))["TOKEN"] == "s3cret"


async def test_a_variable_with_a_mount_path_points_to_the_secrets_files_rewritten_at_each_start(nodes: Nodes) -> None:
    await nodes.start()
    volume = {"name": "keys", "secret": {"secretName": "keys"}}
    mounts = [{"name": "keys", "mountPath": "/etc/keys", "readOnly": True}]
    env = [{"name": "KEYS", "value": "/etc/keys"}, {"name": "KEY", "value": "/etc/keys/a.json"}]
    await nodes.create(make_pod("a", container={"volumeMounts": mounts, "env": env}, volumes=[volume]))

    async def waits() -> bool:
        waiting = (await nodes.container("a")).get("state", {}).get("waiting", {})
        return bool(waiting.get("reason") == "CreateContainerConfigError" and "'keys'" in waiting["message"])

    await until(waits)
    metadata = {"name": "keys", "namespace": NAMESPACE}
    await nodes.cluster.create(SECRET, {"metadata": metadata, "data": {"a.json": "/wA="}}, manager="test")
    process = process_of(await nodes.ready("a"))

    folder = Path(environment_of(process)["KEYS"])
    assert (folder / "a.json").read_bytes() == b"\xff\x00"
    assert (folder.stat().st_mode & 0o777, (folder / "a.json").stat().st_mode & 0o777) == (0o700, 0o400)
    assert environment_of(process)["KEY"] == str(folder / "a.json")

    await nodes.cluster.patch(SECRET, "keys", {"data": {"a.json": None, "b": "Yg=="}}, NAMESPACE, manager="test")
    os.kill(process.pid, signal.SIGKILL)
    await until(lambda: restarted(nodes, "a"))

    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"b": b"b"}


async def restarted(nodes: Nodes, name: str) -> bool:
    """Return whether the Pod has been restarted and is ready."""
    return await nodes.restarts(name) > 0 and bool((await nodes.container(name)).get("ready"))


@pytest.mark.fault("M3")
async def test_limits_of_the_container_are_limits_of_the_process(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a", container={"resources": {"limits": {"memory": "256Mi"}}}))

    pid = process_of(await nodes.ready("a")).pid

    assert resource.prlimit(pid, resource.RLIMIT_DATA) == (3 << 29, 3 << 29)  # 2 × 256 MiB + 1 GiB
    assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)


async def test_a_start_takes_few_writes(nodes: Nodes) -> None:
    await nodes.start()
    created = await nodes.create(make_pod("a"))

    pod = await nodes.ready("a")

    versions = int(pod["metadata"]["resourceVersion"]) - int(created["metadata"]["resourceVersion"])
    assert versions <= 3  # process; running; ready


async def test_a_pod_is_ready_only_while_its_probe_succeeds(nodes: Nodes) -> None:
    await nodes.start()
    probe = READINESS | {"failureThreshold": 1}
    await nodes.create(make_pod("a", "--never-ready", container={"readinessProbe": probe}))

    async def runs() -> Object | None:
        pod = await nodes.pod("a")
        return pod if (pod.get("status") or {}).get("phase") == "Running" else None

    pod = await until(runs)
    assert pod is not None and not is_ready(pod)
    assert condition_of(pod, "Ready")["reason"] == "ContainersNotReady"  # type: ignore[index]

    await get(pod, "/ready")
    await nodes.ready("a")
    await get(pod, "/unready")

    async def not_ready() -> bool:
        return not is_ready(await nodes.pod("a"))

    await until(not_ready)
    assert process_of(await nodes.pod("a")) == process_of(pod)


async def test_an_unsupported_pod_fails_with_a_message(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a", initContainers=[{"name": "i", "image": "server"}]))

    async def failed() -> bool:
        status = (await nodes.pod("a")).get("status") or {}
        return status.get("phase") == "Failed" and "initContainers" in status["message"]

    await until(failed)
    await nodes.cluster.delete(POD, "a", NAMESPACE)
    await nodes.gone("a")


async def test_pods_of_another_node_are_ignored(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("other", nodeName="elsewhere"))
    await nodes.create(make_pod("a"))

    await nodes.ready("a")

    assert "status" not in await nodes.pod("other") or not (await nodes.pod("other"))["status"]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"containers": []},
        {"containers": [{"image": "server"}]},
        {"containers": [{"name": "c", "image": "server", "ports": [{"containerPort": "x"}]}]},
        {"containers": [{"name": "c", "image": "server", "readinessProbe": {"exec": {"command": ["true"]}}}]},
    ],
)
async def test_a_malformed_pod_does_not_affect_others(nodes: Nodes, spec: Object) -> None:
    await nodes.start()
    await nodes.create({"metadata": {"name": "bad", "namespace": NAMESPACE}, "spec": spec})
    await nodes.create(make_pod("a"))

    await nodes.ready("a")

    async def failed() -> bool:
        return bool(((await nodes.pod("bad")).get("status") or {}).get("phase") == "Failed")

    await until(failed)
    await nodes.cluster.delete(POD, "bad", NAMESPACE)
    await nodes.gone("bad")


async def test_the_exit_status_of_a_fork_is_known_after_a_restart_of_the_kubelet(nodes: Nodes) -> None:
    app = "tests.clusters.zygote_app"
    never = ContainerImage(
        (sys.executable, "-c", "raise SystemExit('not forked')"), f"{app}:wait", lambda args: (app,), IMAGE_ENV
    )
    nodes.images["forked"] = never
    await nodes.start()
    pod = make_pod("a", image="forked", container={"readinessProbe": None})
    await nodes.create(pod | {"spec": pod["spec"] | {"restartPolicy": "Never"}})
    stored = await nodes.ready("a")
    await eventually(lambda: "waiting" in log_path(nodes.state, stored).read_text())
    await nodes.abandon()
    os.kill(process_of(stored).pid, signal.SIGTERM)
    await eventually(lambda: ended(process_of(stored)))

    kubelet = await nodes.start()

    end = (await nodes.container("a"))["state"]["terminated"]
    assert (end["exitCode"], end["reason"]) == (7, "Error")
    assert (await nodes.pod("a"))["status"]["phase"] == "Failed"
    await kubelet.stop_all()
    assert find_leftovers(nodes.state) == []


async def test_the_environment_of_a_container_overrides_that_of_its_image(nodes: Nodes) -> None:
    nodes.images["server"] = replace(nodes.images["server"], env={"A": "image", "B": "image"})
    await nodes.start()
    await nodes.create(make_pod("a", container={"env": [{"name": "B", "value": "container"}]}))

    environment = environment_of(process_of(await nodes.ready("a")))

    assert (environment["A"], environment["B"]) == ("image", "container")
