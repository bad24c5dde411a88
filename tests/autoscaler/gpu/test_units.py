"""Which resources are GPUs, their types, and the amounts that a Pod requests."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.gpu.units import is_gpu, read_units, requested_by, type_of
from tests.autoscaler.gpu.objects import GPU, H100, pod


@pytest.mark.parametrize(
    "resource",
    [
        GPU, "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.10gb.shared", "amd.com/gpu",
        "amd.com/cpx_nps4", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi", "example.com/gpu",
    ],
)  # fmt: skip
def test_gpus_their_parts_and_their_shares_are_gpus(resource: str) -> None:
    assert is_gpu(resource)


@pytest.mark.parametrize(
    "resource",
    [
        "cpu",
        "gpu",
        "nvidia.com/gpumem",
        "gpu.intel.com/i915_monitoring",
        "example.com/fpga",
        "hugepages-2Mi",
        "NVIDIA/gpu",
    ],
)
def test_other_resources_are_none(resource: str) -> None:
    assert not is_gpu(resource)


@pytest.mark.parametrize(
    ("resource", "labels", "kind"),
    [
        (GPU, {"nvidia.com/gpu.product": H100}, H100),
        ("nvidia.com/gpu.shared", {"nvidia.com/gpu.product": f"{H100}-SHARED"}, f"{H100}-SHARED"),
        ("nvidia.com/mig-1g.10gb", {"nvidia.com/gpu.product": H100, "nvidia.com/mig-1g.10gb.product": "M"}, "M"),
        ("nvidia.com/mig-1g.10gb.shared", {"nvidia.com/mig-1g.10gb.product": "M"}, "M"),
        ("amd.com/gpu", {"amd.com/gpu.product-name": "MI300X", "nvidia.com/gpu.product": H100}, "MI300X"),
        (GPU, {"cloud.google.com/gke-accelerator": "nvidia-l4"}, "nvidia-l4"),
        (GPU, {"nvidia.com/gpu.product": "", "karpenter.k8s.aws/instance-gpu-name": "t4"}, "t4"),
        ("example.com/gpu", {"nvidia.com/gpu.product": H100}, ""),
        (GPU, {}, ""),
    ],
)
def test_the_type_is_that_of_the_vendors_label(resource: str, labels: dict[str, str], kind: str) -> None:
    assert type_of(resource, labels) == kind


@pytest.mark.parametrize(
    ("quantity", "units"), [("8", 8), (8, 8), ("2k", 2000), ("many", 0), (None, 0), ("-1", 0), (True, 0)]
)
def test_a_quantity_that_is_none_counts_as_nothing(quantity: Any, units: int) -> None:
    assert read_units(quantity) == units


def wants(gpus: int, **more: Any) -> dict[str, Any]:
    return {"resources": {"limits": {GPU: gpus}}, **more}


@pytest.mark.parametrize(
    ("init", "containers", "expected"),
    [
        ([], [wants(1), wants(2)], 3),
        ([wants(4)], [wants(1)], 4),
        ([wants(2), wants(3)], [wants(1)], 3),
        ([wants(1, restartPolicy="Always")], [wants(2)], 3),
        ([wants(1, restartPolicy="Always"), wants(4)], [wants(2)], 5),
        ([wants(4), wants(1, restartPolicy="Always")], [wants(2)], 4),
    ],
)
def test_a_pod_requests_what_the_scheduler_reserves(init: list[Any], containers: list[Any], expected: int) -> None:
    assert requested_by(pod("one", initContainers=init, containers=containers)) == {GPU: expected}


def test_requests_alone_count_and_pods_without_limits_request_nothing() -> None:
    asked = pod("one", containers=[{"resources": {"requests": {GPU: "2", "cpu": "1"}}}])
    assert requested_by(asked) == {GPU: 2}
    assert requested_by(pod("one", containers=[{}, {"resources": None}])) == {}
    assert requested_by({"metadata": {"name": "empty"}}) == {}
