"""Prices: the section of the settings, its faults, and the cost of a replica."""

from __future__ import annotations

import pytest
import yaml

from serving.types.settings.prices import Prices
from serving.types.settings.setting import SettingsError
from serving.types.settings.settings import Settings, settings_from_text, settings_to_dict

TEXT = """
prices: {currency: EUR, cpu: 0.036, memory: 0.0036, gpu: {nvidia.com/gpu: 3.6}, gpuTypes: {NVIDIA-H100: 7.2}}
"""


def test_without_a_section_nothing_costs_anything() -> None:
    prices = Settings().prices
    assert (prices.are_set, prices.currency, prices.of_second({"cpu": 8.0, "memory": 2.0**40})) == (False, "USD", 0.0)


def test_a_replica_costs_its_cores_its_memory_and_its_accelerators() -> None:
    prices = settings_from_text(TEXT, "the file").prices
    replica = {"cpu": 2.0, "memory": 4 * 2.0**30, "nvidia.com/gpu": 1.0, "example.org/other": 9.0}
    assert prices.of_second(replica) * 3600 == pytest.approx(0.072 + 0.0144 + 3.6)
    assert (prices.currency, prices.are_set) == ("EUR", True)


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("nvidia.com/gpu:NVIDIA-H100", 7.2),
        ("nvidia.com/gpu:NVIDIA-L4", 3.6),
        ("nvidia.com/gpu:", 3.6),
        ("nvidia.com/mig-1g.10gb:NVIDIA-H100", 7.2),
        ("nvidia.com/mig-1g.10gb:NVIDIA-H100-MIG-1g.10gb", 0.0),
        ("NVIDIA-H100", 0.0),
    ],
)
def test_a_type_of_gpu_has_its_own_price_or_that_of_the_resource(name: str, price: float) -> None:
    prices = settings_from_text(TEXT, "the file").prices
    assert prices.of_second({name: 2.0}) * 3600 == pytest.approx(2 * price)
    assert Prices(gpu_types={"NVIDIA-H100": 1.0}).are_set


def test_what_is_printed_reads_back_the_same() -> None:
    settings = settings_from_text(TEXT, "the file")
    assert settings_from_text(yaml.safe_dump(settings_to_dict(settings)), "again") == settings
    assert settings.prices == Prices(0.036, 0.0036, {"nvidia.com/gpu": 3.6}, "EUR", {"NVIDIA-H100": 7.2})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prices: 7", "prices: must be a mapping"),
        ("prices: {gpus: {}}", "prices.gpus: unknown setting"),
        ("prices: {cpu: -1}", "prices.cpu: '-1' is not a price"),
        ("prices: {memory: true}", "prices.memory: 'True' is not a price"),
        ("prices: {memory: cheap}", "prices.memory: 'cheap' is not a price"),
        ("prices: {gpu: 2}", "prices.gpu: must be a mapping by an extended resource"),
        ("prices: {gpu: {gpu: 2}}", "prices.gpu: 'gpu' is not an extended resource"),
        ("prices: {gpu: {nvidia.com/gpu: free}}", "prices.gpu.nvidia.com/gpu: 'free' is not a price"),
        ("prices: {gpuTypes: 2}", "prices.gpuTypes: must be a mapping by a type of GPU"),
        ("prices: {gpuTypes: {'nvidia.com/gpu': 2}}", "prices.gpuTypes: 'nvidia.com/gpu' is not a type of GPU"),
        ("prices: {gpuTypes: {NVIDIA-L4: -1}}", "prices.gpuTypes.NVIDIA-L4: '-1' is not a price"),
        ("prices: {currency: 'a b'}", "prices.currency: 'a b' is not a currency"),
    ],
)
def test_what_is_no_price_is_refused_by_its_key(text: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings_from_text(text, "the file")
    assert words in str(caught.value)
