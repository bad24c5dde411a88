"""What a model server reports about the GPUs that its process may use."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pynvml
import pytest
from msgspec.json import encode as dumps

from autoscaler.metrics.signals import Signals
from autoscaler.metrics.stat import parse_stats
from clusters.devices import nvml
from serving.modelserver.base.stats import Stats
from serving.modelserver.observe import gpus
from serving.modelserver.observe.gpus import gpu_families, may_have_gpus, record_reading
from tests.clusters.devices.fake_nvml import FakeNvml


def stats() -> Stats:
    return Stats(lambda: 0.0, "chat-00001", 4)


async def test_the_readings_of_the_visible_gpus_are_in_stats_and_metrics() -> None:
    made, fake = stats(), FakeNvml(2, utilization={1: 80})
    await record_reading(made, partial(nvml.read_uses, fake, "GPU-1"))
    assert made.to_json()["gpu"] == {"utilization": 0.8, "memory": 0.25}
    families = {one.name: one.samples for one in gpu_families(made)}
    labels = {"revision": "chat-00001", "gpu": "GPU-1"}
    assert families["knodel_gpu_utilization"] == ((labels, 0.8),)
    assert families["knodel_gpu_memory_used_bytes"] == ((labels, float(2 << 30)),)
    sample = parse_stats(dumps({**made.to_json(), "kvShare": 0.5}), 0.0)
    assert sample.signals == Signals(0.8, 0.25, 0.5)


async def test_a_lost_gpu_has_no_reading_and_the_server_goes_on() -> None:
    made, fake = stats(), FakeNvml(1)
    await record_reading(made, partial(nvml.read_uses, fake, "GPU-0"))
    fake.lost["GPU-0"] = int(pynvml.NVML_ERROR_GPU_IS_LOST)
    await record_reading(made, partial(nvml.read_uses, fake, "GPU-0"))
    assert made.gpus == ()
    assert "gpu" not in made.to_json()
    assert gpu_families(made) == []


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, ["GPU-0", "GPU-1"]), ("1,0", ["GPU-1", "GPU-0"]), ("GPU-1, 7,0", ["GPU-1"]), ("", [])],
)
def test_the_variable_of_cuda_selects_gpus(visible: str | None, expected: list[str]) -> None:
    assert [one.uuid for one in nvml.read_uses(FakeNvml(2), visible)] == expected


def test_a_gpu_without_utilization_has_its_memory_only() -> None:
    assert [one.utilization for one in nvml.read_uses(FakeNvml(1, utilization={0: None}))] == [None]


def test_without_a_driver_or_a_visible_gpu_nothing_is_sampled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpus, "DRIVER_FILE", tmp_path)
    assert may_have_gpus({})
    assert not may_have_gpus({"CUDA_VISIBLE_DEVICES": ""})
    monkeypatch.setattr(gpus, "DRIVER_FILE", tmp_path / "none")
    assert not may_have_gpus({})


@pytest.mark.parametrize("gpu", [None, [], {"utilization": "x", "memory": 2}, {"utilization": True}])
def test_invalid_signals_are_dropped(gpu: object) -> None:
    assert parse_stats(dumps({"busySeconds": 0, "requests": 0, "gpu": gpu, "kvShare": -1}), 0.0).signals is None
