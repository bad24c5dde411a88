"""Test `knodel gpus`: the GPUs of a cluster with the caller's rights, and those of this machine by NVML."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoscaler.gpu.owners import Owner
from clusters.base.objects import ANNOTATION_PROCESS, POD, Object
from clusters.devices import nvml as nvml_reader
from clusters.devices.driver import DRIVER_FILE
from clusters.devices.machine import DevicesError
from serving.cli.gpus import machine
from tests.autoscaler.gpu.objects import GPU, H100, claim, device_class, node, pod, resource_slice
from tests.serving.cli.conftest import Config, Knodel, Served, check
from tests.serving.cli.kube import CONTEXT, NOTHING, FakeApi, Reply, Script, Seen, failure
from tests.serving.cli.test_narrow_terminals import too_long
from tests.serving.cli.test_tables import make_terminal
from tests.support.terminal import SEQUENCE

PATHS = {
    "/api/v1/nodes": [node("a"), node("b", 4), node("c", 2, product="NVIDIA-L4"), node("plain", {})],
    "/api/v1/pods": [
        pod("chat-1", "a", 2, namespace="default", model="chat"),
        pod("train-0", "a", 4),
        pod("fast-1", "b", namespace="default", labels={"autoscaling.knodel.dev/pool": "fast"}),
        pod("late", gpus=8, namespace="default", owner=("Job", "late")),
    ],
}
ON_CLUSTER = ("gpus", "--kube-context", CONTEXT)


def script(answers: Mapping[str, Any]) -> Script:
    """Return a script with these lists or replies by path; other resources do not exist."""

    def answer(seen: Seen) -> Reply:
        found = answers.get(seen.path)
        if found is None:
            return failure(404, "NotFound", "the server could not find the requested resource")
        return found if isinstance(found, Reply) else Reply(200, {"items": found})

    return answer


def forbidden(what: str) -> Reply:
    return failure(
        403, "Forbidden", f'{what} is forbidden: User "u" cannot list resource "{what}" at the cluster scope'
    )


@pytest.fixture
def cluster(api: FakeApi, config: Config) -> FakeApi:
    """Provide a cluster with GPUs."""
    api.script = script(PATHS)
    return api


def cells(text: str) -> list[list[str]]:
    return [line.split("   ") for line in text.splitlines()]


def test_nodes_are_listed_with_the_holders_of_all_namespaces(cluster: FakeApi, knodel: Knodel) -> None:
    done = knodel(*ON_CLUSTER, "-A")
    assert (done.code, done.err) == (0, "")
    heads, a, b, c, *lines = [[cell.strip() for cell in row if cell.strip()] for row in cells(done.out)]
    assert heads == ["NODE", "RESOURCE", "GPU TYPE", "TOTAL", "HELD", "FREE", "STATE", "HOLDERS"]
    assert a == ["a", GPU, H100, "8", "6", "2", "Ready", "PyTorchJob team/train 4, Model default/chat 2"]
    assert b == ["b", GPU, H100, "4", "1", "3", "Ready", "WarmPool default/fast 1"]
    assert c == ["c", GPU, "NVIDIA-L4", "2", "0", "2", "Ready", "-"]
    assert lines == [
        [f"waiting for GPUs: Job default/late (Pod late, 8 {GPU})"],
        ["node c could be drained: nobody holds its GPUs"],
        [f"node b could be drained: WarmPool default/fast (1 {GPU}) fits on a"],
    ]


def test_holders_of_other_namespaces_are_counted_together(cluster: FakeApi, knodel: Knodel) -> None:
    default, team = knodel(*ON_CLUSTER).out, knodel(*ON_CLUSTER, "-n", "team").out
    assert "Model chat 2, other namespaces 4" in default
    assert "PyTorchJob train 4, other namespaces 2" in team
    assert "waiting" not in team
    assert f"node b could be drained: a Pod of another namespace (1 {GPU}) fits on a" in team
    assert "default" not in team


def test_structured_output_has_nodes_pods_and_moves(cluster: FakeApi, knodel: Knodel) -> None:
    found = json.loads(knodel(*ON_CLUSTER, "-A", "-o", "json").out)
    a = found["nodes"][0]
    assert (a["name"], a["state"]) == ("a", "Ready")
    assert a["gpus"] == [{"resource": GPU, "type": H100, "allocatable": 8, "held": 6, "free": 2}]
    assert a["pods"][0] == {
        "namespace": "default", "pod": "chat-1", "owner": {"kind": "Model", "name": "chat"}, "amounts": {GPU: 2},
    }  # fmt: skip
    assert [one["pod"] for one in found["waiting"]] == ["late"]
    assert [(one["node"], [move["to"] for move in one["moves"]]) for one in found["drainable"]] == [
        ("c", []),
        ("b", ["a"]),
    ]
    assert found["remarks"] == []


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_table_fits_the_terminal(
    cluster: FakeApi, knodel: Knodel, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    terminal = make_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    knodel(*ON_CLUSTER, "-A")
    lines = SEQUENCE.sub("", terminal.getvalue()).splitlines()
    assert too_long(lines, columns) == []
    assert all(word in "\n".join(lines) for word in (H100, "team/train", "default/fast", "default/late"))


def test_devices_of_slices_and_other_resources_are_counted(cluster: FakeApi, knodel: Knodel) -> None:
    dra, npu = "/apis/resource.k8s.io/v1", "example.com/npu"
    cluster.script = script({
        "/api/v1/nodes": [node("a", {npu: "4"})],
        "/api/v1/pods": [pod("one", "a", {npu: 1})],
        f"{dra}/resourceslices": [resource_slice("a", "gpu-0", "gpu-1")],
        f"{dra}/deviceclasses": [device_class("device.driver == 'gpu.nvidia.com'")],
        f"{dra}/resourceclaims": [claim("one", "a", "gpu-1", pods=("one",))],
    })  # fmt: skip
    found = json.loads(knodel(*ON_CLUSTER, "-A", "--resource", npu, "-o", "json").out)
    assert [(one["resource"], one["allocatable"], one["held"]) for one in found["nodes"][0]["gpus"]] == [
        (npu, 4, 1), (GPU, 2, 1),
    ]  # fmt: skip


def test_a_caller_with_rights_in_one_namespace_sees_its_holders(cluster: FakeApi, knodel: Knodel) -> None:
    own = [one for one in PATHS["/api/v1/pods"] if one["metadata"]["namespace"] == "default"]
    cluster.script = script({**PATHS, "/api/v1/pods": forbidden("pods"), "/api/v1/namespaces/default/pods": own})
    done = knodel(*ON_CLUSTER)
    value = json.loads(knodel(*ON_CLUSTER, "-o", "json").out)
    assert done.out.splitlines()[1].split()[4:6] == ["2+", "?"]
    assert "free GPUs are not known: you may list the Pods of namespace default" in done.out
    assert "could be drained" not in done.out
    assert value["nodes"][0]["gpus"][0]["free"] is None
    assert "drainable" not in value
    check(knodel(*ON_CLUSTER, "-A"), 1, ["pods is forbidden"])


def test_a_caller_who_may_not_list_nodes_is_told_so(cluster: FakeApi, knodel: Knodel) -> None:
    cluster.script = script({"/api/v1/nodes": forbidden("nodes")})
    check(knodel(*ON_CLUSTER), 1, ["nodes is forbidden"])


def test_a_cluster_without_gpus_is_a_sentence(api: FakeApi, config: Config, knodel: Knodel) -> None:
    api.script = lambda _: NOTHING
    done = knodel(*ON_CLUSTER)
    assert (done.code, done.err) == (0, "")
    assert "no node of the cluster has GPUs" in done.out
    assert json.loads(knodel(*ON_CLUSTER, "-o", "json").out) == {
        "nodes": [], "waiting": [], "drainable": [], "remarks": [],
    }  # fmt: skip


class NvmlError(Exception):
    """The base of NVML's errors."""


class LibraryNotFoundError(NvmlError):
    """NVML is not installed."""


@dataclass
class Nvml:
    """The functions of `pynvml` that are used, with two GPUs: no machine of the tests has any."""

    fault: type[NvmlError] | None = None
    ended: list[bool] = field(default_factory=list)
    NVMLError = NvmlError
    NVMLError_LibraryNotFound = NVMLError_DriverNotLoaded = LibraryNotFoundError

    def nvmlInit(self) -> None:
        if self.fault is LibraryNotFoundError:
            raise LibraryNotFoundError

    def nvmlShutdown(self) -> None:
        self.ended.append(True)

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if self.fault is NvmlError:
            raise NvmlError("GPU is lost")
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H100"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=80 * 2**30, used=handle * 2**30)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=50, memory=10)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        used = [(21, 2**29), (30, 2**28), (99, None)]
        return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in used] if handle else []


def replica(name: str, process: str) -> Object:
    made = pod(name, model="chat", owner=None)
    made["metadata"]["annotations"] = {ANNOTATION_PROCESS: process}
    return made


def test_processes_on_a_gpu_belong_to_the_replica_that_started_them() -> None:
    nvml = Nvml()
    idle, busy = nvml_reader.read_gpus(nvml)
    pods = [replica("one", '{"pid": 20}'), replica("two", '{"pid": 30}'), replica("broken", "["), pod("none")]
    parents = {21: 20, 20: 10, 99: 1}
    assert nvml.ended == [True]
    assert machine.holders_of(idle, pods, parents.__getitem__) == {}
    assert machine.holders_of(busy, pods, parents.__getitem__) == {Owner("Model", "team", "chat"): 2**29 + 2**28, 99: 0}


def test_rows_and_values_of_a_machine() -> None:
    gpus = nvml_reader.read_gpus(Nvml())
    assert next(machine.rows(gpus, [])) == ["0", "NVIDIA H100", "80 GiB", "0 bytes", "80 GiB", "50%", "-"]
    first, second = machine.value(gpus, [replica("one", '{"pid": 30}')])["gpus"]
    assert (first["uuid"], first["free"], second["used"]) == ("GPU-0", 80 * 2**30, 2**30)
    assert first["utilization"] == 0.5
    assert {"kind": "Model", "namespace": "team", "name": "chat", "memory": 2**28} in second["holders"]


def test_a_gpu_that_failed_is_an_error_with_a_remedy() -> None:
    nvml = Nvml(NvmlError)
    with pytest.raises(DevicesError, match="cannot be read: GPU is lost: `nvidia-smi`"):
        nvml_reader.read_gpus(nvml)
    assert nvml.ended == [True]
    with pytest.raises(nvml_reader.NoDriverError):
        nvml_reader.read_gpus(Nvml(LibraryNotFoundError))


def test_the_parent_of_a_process_is_read_from_proc() -> None:
    assert machine.parent_of(os.getpid()) == os.getppid()
    assert machine.parent_of(2**30) == 0


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nvml]:
    """Install NVML with two GPUs."""
    nvml = Nvml()
    monkeypatch.setattr(nvml_reader, "load_nvml", lambda: nvml)
    yield nvml


async def test_gpus_of_this_machine_name_the_models_of_the_platform(served: Served, gpus: Nvml) -> None:
    made = replica("one", '{"pid": 30}')
    made["metadata"] |= {"namespace": "default"}
    await served.cluster.create(POD, made, manager="test")
    done = await served.knodel("gpus")
    assert (done.code, done.err) == (0, "")
    assert "Model default/chat 256 MiB" in done.out


def test_without_a_platform_the_holders_are_processes(gpus: Nvml, knodel: Knodel) -> None:
    done = knodel("gpus")
    assert (done.code, done.err) == (0, "")
    assert "process 99 0 bytes" in done.out


@pytest.mark.skipif(DRIVER_FILE.exists(), reason="this machine has a driver of NVIDIA")
def test_a_machine_without_a_driver_has_no_gpus(knodel: Knodel) -> None:
    done = knodel("gpus")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{nvml_reader.NO_DRIVER}\n"
    assert json.loads(knodel("gpus", "-o", "json").out) == {"gpus": []}


@pytest.mark.parametrize("driver", [True, False])
def test_the_package_is_needed_only_beside_a_driver(
    driver: bool, knodel: Knodel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(nvml_reader, "DRIVER_FILE", tmp_path if driver else tmp_path / "none")
    done = knodel("gpus")
    if driver:
        check(done, 1, ["`knodel gpus` needs the package pynvml", "'knodel[gpu]'"])
    else:
        assert (done.code, done.out) == (0, f"{nvml_reader.NO_DRIVER}\n")


def test_an_option_of_clusters_is_refused_on_this_machine(knodel: Knodel) -> None:
    check(knodel("gpus", "--resource", "example.com/npu"), 2, ["--resource applies to a cluster"])
