"""GPUs of the node: assignment, waiting, restarts of the kubelet, parts, failures and the Node object."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.gpu.inventory import make_inventory
from clusters.base.clock import SystemClock
from clusters.base.objects import ANNOTATION_DEVICES, ANNOTATION_GPU_FRACTION, EVENT, NODE, POD, Object, condition_of
from clusters.devices.device_file import FileSource
from clusters.devices.machine import Device, Machine, NoDevices
from clusters.devices.topology import SYS
from clusters.embedded.kubelet.gpus.assignment import Assignment, Request, assign, recorded_assignment, waiting_message
from clusters.embedded.kubelet.gpus.mps import MpsDaemons
from clusters.embedded.kubelet.process.folders import Folders
from tests.clusters.kubelet.nodes import NAMESPACE, Nodes, ended, environment_of, make_pod, process_of, until

GPU = "nvidia.com/gpu"
LINKS = [
    ["X" if one == other else "PIX" if {one, other} == {0, 1} else "SYS" for other in range(4)] for one in range(4)
]


def write_devices(path: Path, count: int = 4, faults: dict[str, str] | None = None) -> FileSource:
    devices = [{"uuid": f"GPU-{index}", "name": "Tesla P4", "memory": "8Gi"} for index in range(count)]
    links = [row[:count] for row in LINKS[:count]]
    path.write_text(json.dumps({"devices": devices, "links": links, "faults": faults or {}}))
    return FileSource(path)


def gpu_pod(name: str, count: int = 1, fraction: str = "", **spec: Any) -> Object:
    limits: dict[str, Any] = {} if fraction else {"container": {"resources": {"limits": {GPU: str(count)}}}}
    pod = make_pod(name, **limits, **spec)
    pod["metadata"]["annotations"] = {ANNOTATION_GPU_FRACTION: fraction} if fraction else {}
    return pod


async def waiting(nodes: Nodes, name: str) -> str:
    """Wait until the Pod is unschedulable and return why."""

    async def check() -> str:
        condition = condition_of(await nodes.pod(name), "PodScheduled") or {}
        return str(condition["message"]) if condition.get("reason") == "Unschedulable" else ""

    return await until(check)


def visible(pod: Object) -> str:
    return environment_of(process_of(pod))["CUDA_VISIBLE_DEVICES"]


async def test_pods_get_the_best_linked_gpus_and_others_see_none(nodes: Nodes, tmp_path: Path) -> None:
    nodes.devices = write_devices(tmp_path / "devices.json")
    await nodes.start()
    await nodes.create(gpu_pod("single"))
    assert visible(await nodes.ready("single")) == "GPU-2"
    await nodes.create(gpu_pod("pair", 2))
    assert visible(await nodes.ready("pair")) == "GPU-0,GPU-1"
    await nodes.create(make_pod("none"))
    assert visible(await nodes.ready("none")) == ""


async def test_a_pod_waits_until_enough_gpus_are_released(nodes: Nodes, tmp_path: Path) -> None:
    nodes.devices = write_devices(tmp_path / "devices.json", 1)
    await nodes.start()
    await nodes.create(gpu_pod("first"))
    first = await nodes.ready("first")
    await nodes.create(gpu_pod("second"))
    assert (await waiting(nodes, "second")).startswith(f"0/1 GPUs free, and the Pod requests 1 {GPU}")
    assert (await nodes.pod("second"))["status"]["phase"] == "Pending"

    await nodes.cluster.delete(POD, "first", NAMESPACE)

    second = await nodes.ready("second")
    assert ended(process_of(first))
    assert visible(second) == "GPU-0"
    assert (condition_of(second, "PodScheduled") or {})["status"] == "True"


async def test_a_waiting_pod_can_be_deleted(nodes: Nodes, tmp_path: Path) -> None:
    nodes.devices = write_devices(tmp_path / "devices.json", 1)
    await nodes.start()
    await nodes.create(gpu_pod("large", 2))
    assert "reduce resources.gpu to 1" in await waiting(nodes, "large")
    await nodes.cluster.delete(POD, "large", NAMESPACE)
    await nodes.gone("large")
    await nodes.create(gpu_pod("small"))
    await nodes.ready("small")


async def test_a_new_kubelet_knows_what_running_and_waiting_pods_have(nodes: Nodes, tmp_path: Path) -> None:
    nodes.devices = write_devices(tmp_path / "devices.json", 1)
    await nodes.start()
    await nodes.create(gpu_pod("first"))
    await nodes.ready("first")
    await nodes.create(gpu_pod("second"))
    await waiting(nodes, "second")
    await nodes.abandon()

    await nodes.start()

    await nodes.create(gpu_pod("third"))
    await waiting(nodes, "third")
    assert recorded_assignment(await nodes.pod("second")) is None
    await nodes.cluster.delete(POD, "first", NAMESPACE)
    assert visible(await nodes.ready("second")) == "GPU-0"  # the older of the two
    assert recorded_assignment(await nodes.pod("third")) is None


async def test_a_pod_whose_gpu_is_lost_ends_with_the_reason(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusters.embedded.kubelet.gpus.device_manager.CHECK_INTERVAL", 0.05)
    nodes.devices = write_devices(tmp_path / "devices.json", 2)
    await nodes.start()
    await nodes.create(gpu_pod("a"))
    lost = visible(await nodes.ready("a"))
    ended_with: list[Object] = []
    delete = nodes.cluster.delete

    async def spy(*arguments: Any, **options: Any) -> Any:
        ended_with.append(await nodes.pod("a"))
        assert await allocatable(nodes, "2")  # the Pod still holds the lost one
        return await delete(*arguments, **options)

    monkeypatch.setattr(nodes.cluster, "delete", spy)
    write_devices(tmp_path / "devices.json", 2, {lost: "GPU is lost"})
    await nodes.gone("a")
    await until(lambda: allocatable(nodes, "1"))
    condition = condition_of(ended_with[0], "DisruptionTarget") or {}
    assert (condition["status"], condition["reason"]) == ("True", "GPULost")
    assert f"{lost}: GPU is lost" in condition["message"]
    events = (await nodes.cluster.list(EVENT, NAMESPACE)).items
    assert any(one["reason"] == "GPULost" and f"{lost}: GPU is lost" in one["message"] for one in events)

    async def shown() -> bool:
        node = await nodes.cluster.get(NODE, "embedded")
        return (condition_of(node, "GPUsHealthy") or {}).get("reason") == "GPULost"

    await until(shown)
    await nodes.create(gpu_pod("b"))
    assert visible(await nodes.ready("b")) not in ("", lost)


async def allocatable(nodes: Nodes, count: str) -> bool:
    """Return whether the Node has so many allocatable GPUs."""
    return bool((await nodes.cluster.get(NODE, "embedded"))["status"]["allocatable"][GPU] == count)


async def test_the_inventory_of_the_autoscaler_counts_the_node(nodes: Nodes, tmp_path: Path) -> None:
    nodes.devices = write_devices(tmp_path / "devices.json")
    await nodes.start()
    await nodes.create(gpu_pod("pair", 2))
    await nodes.ready("pair")
    node = await nodes.cluster.get(NODE, "embedded")
    [found] = make_inventory([node], [await nodes.pod("pair")]).nodes
    assert (found.types, found.state) == ({GPU: "Tesla-P4"}, "Ready")
    assert (found.allocatable[GPU], found.free(GPU)) == (4, 2)


async def test_on_a_machine_without_known_gpus_pods_start_with_a_remark(nodes: Nodes) -> None:
    await nodes.start()
    await nodes.create(gpu_pod("a"))
    assert "CUDA_VISIBLE_DEVICES" not in environment_of(process_of(await nodes.ready("a")))
    assert any(one["reason"] == "GPUsNotAssigned" for one in (await nodes.cluster.list(EVENT, NAMESPACE)).items)
    assert GPU not in (await nodes.cluster.get(NODE, "embedded"))["status"]["allocatable"]


async def test_a_process_with_gpus_is_executed_although_its_image_has_a_zygote(nodes: Nodes, tmp_path: Path) -> None:
    image = nodes.images["server"]
    nodes.images["server"] = replace(image, entry="tests.clusters.zygote_app:main", preload=lambda _: ("json",))
    nodes.devices = write_devices(tmp_path / "devices.json")
    await nodes.start()
    await nodes.create(gpu_pod("a"))
    process = process_of(await nodes.ready("a"))
    assert (Path("/proc") / str(process.pid) / "cmdline").read_text().startswith(sys.executable)
    assert not list(Folders(nodes.state).zygotes.iterdir())


async def test_parts_of_a_gpu_are_limited_by_mps(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "bin" / "nvidia-cuda-mps-control"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\nexec sleep 1000\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    nodes.devices = write_devices(tmp_path / "devices.json", 2)
    kubelet = await nodes.start()
    await nodes.create(gpu_pod("a", fraction="0.3"))
    await nodes.create(gpu_pod("b", fraction="0.7"))
    a, b = [environment_of(process_of(await nodes.ready(name))) for name in ("a", "b")]
    assert a["CUDA_VISIBLE_DEVICES"] == b["CUDA_VISIBLE_DEVICES"]
    assert (a["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], b["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]) == ("30", "70")
    assert a["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=2457M"
    assert a["CUDA_MPS_PIPE_DIRECTORY"] == b["CUDA_MPS_PIPE_DIRECTORY"]
    assert len(list((nodes.state / "mps").glob("*/process.json"))) == 1
    await kubelet.stop_all(0.1)
    await MpsDaemons(Folders(nodes.state), SystemClock()).shut_down()


async def test_without_mps_a_part_is_said_to_be_without_isolation(nodes: Nodes, tmp_path: Path) -> None:
    nodes.devices = write_devices(tmp_path / "devices.json", 1)
    await nodes.start()
    await nodes.create(gpu_pod("a", fraction="0.25"))
    found = await nodes.ready("a")
    assert json.loads(found["metadata"]["annotations"][ANNOTATION_DEVICES])["isolated"] is False
    env = environment_of(process_of(found))
    assert (env["KNODEL_GPU_SHARE"], env["KNODEL_GPU_MEMORY"]) == ("0.25", str(2 << 30))
    assert any(one["reason"] == "NoGPUIsolation" for one in (await nodes.cluster.list(EVENT, NAMESPACE)).items)


@pytest.mark.parametrize("fraction", ["0", "1.5", "x", "NaN", "Infinity"])
async def test_a_wrong_fraction_is_refused(nodes: Nodes, fraction: str) -> None:
    await nodes.start()
    await nodes.create(gpu_pod("a", fraction=fraction))

    async def failed() -> bool:
        return ((await nodes.pod("a")).get("status") or {}).get("phase") == "Failed"

    await until(failed)
    assert "must be a number from 0.001 to 1" in (await nodes.pod("a"))["status"]["message"]


MACHINE = Machine(tuple(Device(f"GPU-{index}", "P4", 8 << 30) for index in range(2)), [[SYS] * 2] * 2)


def test_parts_fill_one_gpu_before_the_next() -> None:
    first = assign(MACHINE, (), (), Request(1, 600))
    assert first == Assignment(("GPU-0",), 600)
    second = assign(MACHINE, (first,), (), Request(1, 400))
    assert second == Assignment(("GPU-0",), 400)
    assert assign(MACHINE, (first, second), (), Request(1, 1)) == Assignment(("GPU-1",), 1)
    assert assign(MACHINE, (first,), (), Request(2)) is None
    assert assign(MACHINE, (), ("GPU-0",), Request(1)) == Assignment(("GPU-1",))


def test_the_reason_of_waiting_names_parts_and_failures() -> None:
    held = [Assignment(("GPU-0",), 600)]
    assert waiting_message(MACHINE, held, ("GPU-1",), Request(1)) == (
        f"0/2 GPUs free (0.4 of others), 1 failed, and the Pod requests 1 {GPU}: it starts when others end"
    )
    assert waiting_message(MACHINE, held, ("GPU-0", "GPU-1"), Request(1)).endswith(
        f"2 failed, and the Pod requests 1 {GPU}: `nvidia-smi` shows the state of the failed ones"
    )
    assert f"and the Pod requests 0.3 {GPU}" in waiting_message(MACHINE, held, (), Request(1, 300))


def test_a_broken_record_is_no_assignment() -> None:
    assert [Assignment.parse(text) for text in ("", "[]", '{"uuids": 1}')] == [None, None, None]
    assert NoDevices().read() == Machine()
