"""Prices of resources: the section `prices` of the settings, for bills and forecasts. Pure.

    prices:
      currency: EUR
      cpu: 0.031                       # per core and hour
      memory: 0.0042                   # per GiB and hour
      gpu: {nvidia.com/gpu: 2.10}      # per device and hour, by the resource's name
      gpuTypes: {NVIDIA-H100-80GB-HBM3: 4.30}  # those of a type instead, by the label of the node

Prices are 0 by default: bills then show pod-hours, and no amounts of money.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from autoscaler.usage.meter import TYPE_SEPARATOR
from serving.types.settings.setting import SettingsError

GROUP: Final = "prices"
"""The section of the settings."""
HOUR: Final = 3_600.0  # s
GIBIBYTE: Final = 2.0**30  # bytes
CURRENCY: Final = "USD"
MOST: Final = 1e6
"""Per hour; more is a typing error."""
_RESOURCE: Final = re.compile(r"[a-z0-9][a-z0-9.-]*/[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_CURRENCY: Final = re.compile(r"[A-Za-z€$£¥]{1,8}")
_TYPE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)  # the value of a label
_KEYS: Final = ("currency", "cpu", "memory", "gpu", "gpuTypes")


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per hour, in `currency`: of a core, of a GiB of memory, and of one unit of each extended resource.

    `gpu_types` has the prices of types of GPU; other types cost what `gpu` has for the resource.
    """

    cpu: float = 0.0
    memory: float = 0.0
    gpu: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    currency: str = CURRENCY
    gpu_types: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def are_set(self) -> bool:
        """Return whether any price is above 0."""
        return any((self.cpu, self.memory, *self.gpu.values(), *self.gpu_types.values()))

    def of_second(self, replica: Mapping[str, float]) -> float:
        """Return the price of a replica per second.

        `cpu` is in cores, `memory` in bytes. Extended resources have their names, those of GPUs also with their type.

        Example:
            prices.of_second({"cpu": 2.0, "nvidia.com/gpu:NVIDIA-H100-80GB-HBM3": 1.0}) * HOUR
        """
        per_hour = replica.get("cpu", 0.0) * self.cpu + replica.get("memory", 0.0) / GIBIBYTE * self.memory
        for name, amount in replica.items():
            resource, _, kind = name.partition(TYPE_SEPARATOR)
            per_hour += amount * self.gpu_types.get(kind, self.gpu.get(resource, 0.0))
        return per_hour / HOUR


def read_prices(given: Mapping[str, Any]) -> Prices:
    """Read the section. Raises SettingsError; its message begins with the key."""
    if unknown := [name for name in given if name not in _KEYS]:
        known = ", ".join(f"{GROUP}.{name}" for name in _KEYS)
        raise SettingsError(f"{GROUP}.{unknown[0]}: unknown setting; known: {known}")
    return Prices(
        cpu=_price(f"{GROUP}.cpu", given.get("cpu")),
        memory=_price(f"{GROUP}.memory", given.get("memory")),
        gpu=MappingProxyType(_by_name("gpu", given.get("gpu"), _RESOURCE, "an extended resource", "nvidia.com/gpu")),
        gpu_types=MappingProxyType(
            _by_name("gpuTypes", given.get("gpuTypes"), _TYPE, "a type of GPU", "NVIDIA-H100-80GB-HBM3")
        ),
        currency=_currency(given.get("currency")),
    )


def prices_to_dict(prices: Prices) -> dict[str, Any]:
    """Return the section with these prices."""
    return {
        "currency": prices.currency,
        "cpu": prices.cpu,
        "memory": prices.memory,
        "gpu": dict(prices.gpu),
        "gpuTypes": dict(prices.gpu_types),
    }


def _by_name(setting: str, value: Any, names: re.Pattern[str], what: str, example: str) -> dict[str, float]:
    """Read prices by names that match `names`. Raises SettingsError."""
    if value is None:
        return {}
    key = f"{GROUP}.{setting}"
    if not isinstance(value, Mapping):
        raise SettingsError(f"{key}: must be a mapping by {what}, as in {key}: {{{example}: 2.10}}")
    for name in value:
        if not isinstance(name, str) or not names.fullmatch(name):
            raise SettingsError(f"{key}: {str(name)[:80]!r} is not {what} such as {example}")
    return {name: _price(f"{key}.{name}", price) for name, price in sorted(value.items())}


def _price(key: str, value: Any) -> float:
    if value is None:
        return 0.0
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0.0 <= value <= MOST:
        raise SettingsError(f"{key}: {str(value)[:40]!r} is not a price: write a number from 0 to {MOST:g} per hour")
    return float(value)


def _currency(value: Any) -> str:
    if value is None:
        return CURRENCY
    if not isinstance(value, str) or not _CURRENCY.fullmatch(value):
        raise SettingsError(f"{GROUP}.currency: {str(value)[:40]!r} is not a currency such as {CURRENCY}")
    return value
