"""Failing containers: probes, termination messages, back-off, restart policy."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from clusters.base.objects import EVENT
from clusters.net.endpoints import endpoint_of, is_ready
from tests.clusters.kubelet.nodes import (
    NAMESPACE,
    Nodes,
    ended,
    get,
    make_pod,
    process_of,
    until,
)


@pytest.mark.fault("M3")
async def test_a_failed_liveness_probe_restarts_the_container(nodes: Nodes) -> None:
    await nodes.start()
    probe = {"httpGet": {"path": "/v2/health/live", "port": 8080}, "periodSeconds": 1, "failureThreshold": 1}
    await nodes.create(make_pod("a", container={"livenessProbe": probe}))
    pod = await nodes.ready("a")
    before = process_of(pod)

    await get(pod, "/die")

    async def restarted() -> bool:
        return await nodes.restarts("a") == 1 and is_ready(await nodes.pod("a"))

    await until(restarted)
    assert ended(before)
    events = (await nodes.cluster.list(EVENT, NAMESPACE)).items
    assert any(event["reason"] == "Unhealthy" and "500" in event["message"] for event in events)


@pytest.mark.fault("M3")
async def test_a_container_that_does_not_start_in_time_is_restarted(nodes: Nodes) -> None:
    await nodes.start()
    probe = {"httpGet": {"path": "/v2/health/ready", "port": 0}, "periodSeconds": 0.05, "failureThreshold": 1}
    await nodes.create(make_pod("a", "--never-ready", container={"startupProbe": probe, "readinessProbe": None}))

    async def restarted() -> bool:
        return await nodes.restarts("a") >= 1

    await until(restarted)


@pytest.mark.fault("M3")
async def test_a_failed_start_has_its_termination_message_and_backs_off(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a", "--fail", "digest is sha256:1, wanted sha256:2"))

    async def looping() -> dict[str, Any] | None:
        container = await nodes.container("a")
        return container if container.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff" else None

    container = await until(looping)
    last = container["lastState"]["terminated"]
    assert (last["exitCode"], last["reason"]) == (3, "Error")
    assert last["message"] == "digest is sha256:1, wanted sha256:2"

    async def again() -> bool:
        return await nodes.restarts("a") >= 3

    await until(again)


async def test_a_crash_restarts_the_container_at_once_on_the_same_ports(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a", "--child"))
    pod = await nodes.ready("a")

    with pytest.raises((ConnectionError, AssertionError, IndexError)):
        assert await get(pod, "/crash")

    async def restarted() -> bool:
        return await nodes.restarts("a") == 1 and is_ready(await nodes.pod("a"))

    await until(restarted)
    after = await nodes.pod("a")
    assert endpoint_of(after) == endpoint_of(pod)
    last = (await nodes.container("a"))["lastState"]["terminated"]
    assert (last["exitCode"], last["signal"]) == (128 + signal.SIGSEGV, signal.SIGSEGV)


@pytest.mark.parametrize(("policy", "code", "phase"), [("Never", 1, "Failed"), ("OnFailure", 0, "Succeeded")])
async def test_a_pod_that_is_not_restarted_has_a_final_phase(nodes: Nodes, policy: str, code: int, phase: str) -> None:
    await nodes.start()
    await nodes.create(make_pod("a", restartPolicy=policy))
    pod = await nodes.ready("a")

    with pytest.raises((ConnectionError, AssertionError)):
        assert await get(pod, f"/exit/{code}")

    async def over() -> bool:
        return bool((await nodes.pod("a"))["status"]["phase"] == phase)

    await until(over)


async def test_a_container_with_an_unknown_image_waits(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a", image="ghcr.io/other"))

    async def waits() -> bool:
        waiting = (await nodes.container("a")).get("state", {}).get("waiting", {})
        return bool(
            waiting.get("reason") == "ImagePullBackOff" and "the images of this node are server" in waiting["message"]
        )

    await until(waits)


async def test_a_command_that_does_not_exist_is_a_start_error(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(make_pod("a", container={"command": ["/no/such/program"]}))

    async def failed() -> bool:
        last = (await nodes.container("a")).get("lastState", {}).get("terminated", {})
        return bool(last.get("reason") == "StartError" and "/no/such/program" in last["message"])

    await until(failed)
