"""The sources of GPUs: NVML, the command `nvidia-smi` and a file."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pynvml
import pytest

from clusters.devices import nvml, sources
from clusters.devices.device_file import FileSource
from clusters.devices.machine import Device, DevicesError, NoDevices
from clusters.devices.nvml import NoDriverError, NvmlSource
from clusters.devices.smi import SmiSource, run_smi
from tests.clusters.devices.fake_nvml import FakeNvml
from tests.clusters.devices.test_topology import MATRICES, read


def test_nvml_scores_bridges_and_nvlinks_and_switches() -> None:
    fake = FakeNvml(3, bridges={(0, 1): pynvml.NVML_TOPOLOGY_SINGLE}, nvlinks={(0, 2): 2})
    machine = NvmlSource(fake).read()
    assert machine.devices[1] == Device("GPU-1", "Tesla P4", 8 << 30)
    assert machine.scores == [[0, 50, 210], [50, 0, 10], [210, 10, 0]]
    assert NvmlSource(FakeNvml(2, switched=18)).read().scores == [[0, 1810], [1810, 0]]
    assert fake.open == 0


def test_only_gpus_that_are_lost_or_need_a_reset_are_faults() -> None:
    fake = FakeNvml(3)
    source = NvmlSource(fake)
    source.read()
    assert source.faults() == {}
    fake.lost = {"GPU-0": pynvml.NVML_ERROR_GPU_IS_LOST, "GPU-1": pynvml.NVML_ERROR_TIMEOUT}
    assert source.faults() == {"GPU-0": "GPU is lost"}


def test_a_gpu_with_a_critical_error_stays_a_fault_and_errors_of_programs_do_not_count() -> None:
    fake = FakeNvml(3)
    source = NvmlSource(fake)
    source.read()
    assert source.faults() == {}
    assert fake.watched == [0, 1, 2]
    fake.xids = [(0, 13), (1, 79), (1, 48), (2, 31)]
    for _ in range(2):
        assert source.faults() == {"GPU-1": "the driver reported Xid 79"}
    assert fake.watched == [0, 1, 2]
    assert fake.open == 1  # of the events


def test_gpus_without_events_are_checked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    fake = FakeNvml(1)
    source = NvmlSource(fake)
    source.read()
    monkeypatch.setattr(fake, "nvmlDeviceRegisterEvents", unsupported)
    assert source.faults() == {}
    monkeypatch.setattr(fake, "nvmlEventSetCreate", unsupported)
    other = NvmlSource(fake)
    other.read()
    fake.lost = {"GPU-0": pynvml.NVML_ERROR_GPU_IS_LOST}
    assert other.faults() == {"GPU-0": "GPU is lost"}


def test_a_driver_that_is_not_loaded_is_told_apart_from_one_that_fails() -> None:
    with pytest.raises(NoDriverError):
        NvmlSource(FakeNvml(absent=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)).read()
    with pytest.raises(DevicesError, match="`nvidia-smi` shows"):
        NvmlSource(FakeNvml(absent=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)).read()


def test_the_fake_has_the_signatures_of_the_package() -> None:
    for name, function in inspect.getmembers(FakeNvml, inspect.isfunction):
        if name.startswith(("nvmlDevice", "nvmlEventSet")):
            assert list(inspect.signature(function).parameters)[1:] == list(
                inspect.signature(getattr(pynvml, name)).parameters
            ), name


def test_the_command_lists_gpus_and_links() -> None:
    def run(arguments: Sequence[str]) -> str:
        if arguments == ("topo", "-m"):
            return (MATRICES / "slide.txt").read_text()
        return "".join(f"GPU-{index}, Tesla P4, 7680\n" for index in range(4))

    machine = SmiSource(run).read()
    assert machine.devices[3] == Device("GPU-3", "Tesla P4", 7680 << 20)
    assert machine.scores == read("slide")
    with pytest.raises(DevicesError, match="lists 1 GPUs, and links of 4"):
        SmiSource(lambda arguments: run(arguments) if arguments[0] == "topo" else "GPU-0, Tesla P4, 7680\n").read()


def test_a_missing_command_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DevicesError, match="cannot run `nvidia-smi`"):
        run_smi(("-L",))


def test_a_file_describes_gpus(tmp_path: Path) -> None:
    path = tmp_path / "devices.json"
    devices = [{"uuid": f"GPU-{index}", "name": "Tesla P4", "memory": "8Gi"} for index in range(2)]
    path.write_text(
        json.dumps({"devices": devices, "links": [["X", "NV1"], ["NV1", "X"]], "faults": {"GPU-1": "lost"}})
    )
    source = sources.find_source({sources.VARIABLE: str(path)})
    assert source.read().scores == [[0, 100], [100, 0]]
    assert source.read().devices[0].memory == 8 << 30
    assert source.faults() == {"GPU-1": "lost"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "cannot read"),
        ("[]", "must be a JSON object"),
        ('{"devices": [{"uuid": "a"}]}', "each device needs"),
        ('{"devices": [], "links": [["X"]]}', "0 rows"),
        ('{"devices": [{"uuid": "a", "name": "b", "memory": 1}], "links": [["FAST"]]}', "'FAST' is unknown"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "devices.json"
    path.write_text(text)
    with pytest.raises(DevicesError, match=fault):
        FileSource(path).read()


def test_without_package_and_command_no_gpu_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(nvml, "DRIVER_FILE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    source = sources.find_source({})
    assert isinstance(source, NoDevices)
    assert (source.read().devices, source.faults()) == ((), {})
    (tmp_path / "nvidia-smi").touch(0o755)
    assert isinstance(sources.find_source({}), SmiSource)
