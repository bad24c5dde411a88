"""The section `gpu` of the settings: who may have how many GPUs, and every fault with its key."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.gpu.claims import AllocationSettings, Tenant
from autoscaler.gpu.settings import allocation_to_dict, read_allocation
from autoscaler.settings_file import BadSettings, read_settings
from serving.types.settings.setting import SettingsError
from serving.types.settings.settings import settings_from_text, settings_to_dict

GPU = "nvidia.com/gpu"
FULL = {
    "tenants": {"team-a": {"weight": 3, "guarantee": {GPU: 4}, "limit": {GPU: 8}}, "team-b": {}},
    "reserve": {GPU: 1},
    "settle": "20s",
    "minRuntime": "2m",
    "startPause": "0s",
    "patience": "1h",
}
TEXT = f"""
prices: {{gpu: {{{GPU}: 2.1}}, gpuTypes: {{H100: 4.3}}}}
gpu: {{tenants: {{team-a: {{weight: 3}}}}, settle: 20s}}
"""


def test_every_setting_is_read_and_written_again() -> None:
    found = read_allocation(FULL, {GPU: 2.1, "H100": 4.3, "free": 0.0})
    assert found == AllocationSettings(
        {"team-a": Tenant(3.0, {GPU: 4}, {GPU: 8}), "team-b": Tenant()}, {GPU: 2.1, "H100": 4.3}, {GPU: 1},
        20.0, 120.0, 0.0, 3600.0,
    )  # fmt: skip
    again = read_allocation(allocation_to_dict(found), found.prices)
    assert again == found


def test_without_the_section_there_are_defaults() -> None:
    assert read_allocation(None, {}) == AllocationSettings()


def test_the_autoscaler_and_the_platform_read_the_same() -> None:
    ours, theirs = settings_from_text(TEXT, "FILE").gpu, read_settings(TEXT, "FILE").gpus
    assert ours == theirs
    assert (ours.settle, ours.prices) == (20.0, {GPU: 2.1, "H100": 4.3})
    assert settings_to_dict(settings_from_text(TEXT, "FILE"))["gpu"]["tenants"]["team-a"]["weight"] == 3.0


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ([], "gpu: must be a mapping"),
        ({"tenant": {}}, "gpu.tenant: unknown setting; known: gpu.tenants"),
        ({"tenants": {"Team": {}}}, "gpu.tenants.Team: must be the name of a namespace"),
        ({"tenants": {1: {}}}, "gpu.tenants.1: must be the name of a namespace"),
        ({"tenants": {"a": 3}}, "gpu.tenants.a: must be a mapping, as in {weight: 3}"),
        ({"tenants": {"a": {"share": 3}}}, "gpu.tenants.a.share: unknown setting; known: weight, guarantee, limit"),
        ({"tenants": {"a": {"weight": 0}}}, "gpu.tenants.a.weight: must be a number above 0"),
        ({"tenants": {"a": {"weight": True}}}, "gpu.tenants.a.weight: must be a number above 0"),
        ({"tenants": {"a": {"weight": float("nan")}}}, "gpu.tenants.a.weight: must be a number above 0"),
        ({"tenants": {"a": {"limit": {GPU: -1}}}}, f"gpu.tenants.a.limit.{GPU}: must be a whole number from 0"),
        ({"tenants": {"a": {"limit": {"gpu": 1}}}}, "gpu.tenants.a.limit: 'gpu' is not an extended resource"),
        (
            {"tenants": {"a": {"guarantee": {GPU: 3}, "limit": {GPU: 2}}}},
            f"gpu.tenants.a.guarantee.{GPU}: must be at most its limit (2), not 3",
        ),
        ({"reserve": {GPU: 1.5}}, f"gpu.reserve.{GPU}: must be a whole number"),
        ({"settle": "soon"}, "gpu.settle: must be a duration"),
        ({"minRuntime": "25h"}, "gpu.minRuntime: must be at most"),
    ],
)
def test_a_fault_names_its_key(given: Any, fault: str) -> None:
    with pytest.raises(ValueError, match="gpu") as raised:
        read_allocation(given, {})
    assert str(raised.value).startswith(fault)


def test_both_programs_report_a_fault() -> None:
    text = "gpu: {settle: never}"
    with pytest.raises(BadSettings, match=r"gpu\.settle"):
        read_settings(text, "FILE")
    with pytest.raises(SettingsError, match=r"gpu\.settle"):
        settings_from_text(text, "FILE")
