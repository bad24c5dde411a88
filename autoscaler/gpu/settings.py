"""The section `gpu` of the settings: who may have how many GPUs. Pure.

    gpu:
      tenants:                          # by namespace; others have weight 1
        team-a: {weight: 3, guarantee: {nvidia.com/gpu: 4}, limit: {nvidia.com/gpu: 8}}
      reserve: {nvidia.com/gpu: 1}      # units that only models take
      settle: 10s                       # units must have been free for so long before training grows
      minRuntime: 60s                   # growth is not given to the growth of another job before
      startPause: 10s                   # training does not grow after it gave something back
      patience: 300s                    # a job that waits for longer is not passed by younger ones

Shares are compared by the prices of GPUs in the section `prices`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from autoscaler.gpu.claims import AllocationSettings, Tenant
from autoscaler.gpu.units import Amounts
from clusters.base.durations import format_duration, parse_duration

SECTION: Final = "gpu"
KEYS: Final = ("tenants", "reserve", "settle", "minRuntime", "startPause", "patience")
_TENANT_KEYS: Final = ("weight", "guarantee", "limit")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_RESOURCE: Final = re.compile(r"[a-z0-9][a-z0-9.-]*/[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_DURATIONS: Final = {
    "settle": "settle",
    "minRuntime": "min_runtime",
    "startPause": "start_pause",
    "patience": "patience",
}
LONGEST: Final = 86_400.0
"""s."""
MOST_UNITS: Final = 1_000_000
MOST_WEIGHT: Final = 1000.0


def read_allocation(given: Any, prices: Mapping[str, float]) -> AllocationSettings:
    """Read the section; None is absent. `prices` are those of a unit, by type and resource.

    Raises ValueError; its message begins with the key.
    """
    section = _mapping(SECTION, given, "gpu: {tenants: {team-a: {weight: 3}}}")
    if unknown := [name for name in section if name not in KEYS]:
        known = ", ".join(f"{SECTION}.{name}" for name in KEYS)
        raise ValueError(f"{SECTION}.{unknown[0]}: unknown setting; known: {known}")
    times = {
        attribute: _duration(f"{SECTION}.{key}", section[key])
        for key, attribute in _DURATIONS.items()
        if section.get(key) is not None
    }
    tenants = _mapping(f"{SECTION}.tenants", section.get("tenants"), "{team-a: {weight: 3}}")
    return AllocationSettings(
        {name: _tenant(name, value) for name, value in sorted(tenants.items(), key=str)},
        {name: price for name, price in prices.items() if price > 0},
        _amounts(f"{SECTION}.reserve", section.get("reserve")),
        **times,
    )


def allocation_to_dict(settings: AllocationSettings) -> dict[str, Any]:
    """Return the section with these settings."""
    return {
        "tenants": {
            name: {"weight": tenant.weight, "guarantee": dict(tenant.guarantee), "limit": dict(tenant.limit)}
            for name, tenant in settings.tenants.items()
        },
        "reserve": dict(settings.reserve),
        **{key: format_duration(getattr(settings, attribute)) for key, attribute in _DURATIONS.items()},
    }


def _tenant(name: Any, value: Any) -> Tenant:
    key = f"{SECTION}.tenants.{str(name)[:63]}"
    if not isinstance(name, str) or not _NAMESPACE.fullmatch(name):
        raise ValueError(f"{key}: must be the name of a namespace")
    given = _mapping(key, value, "{weight: 3}")
    if unknown := [one for one in given if one not in _TENANT_KEYS]:
        raise ValueError(f"{key}.{unknown[0]}: unknown setting; known: {', '.join(_TENANT_KEYS)}")
    weight, bounds = given.get("weight", 1.0), f"must be a number above 0 and at most {MOST_WEIGHT:g}"
    if not _is_number(weight) or not 0.0 < weight <= MOST_WEIGHT:
        raise ValueError(f"{key}.weight: {bounds}, not {str(weight)[:40]!r}")
    guarantee, limit = (_amounts(f"{key}.{one}", given.get(one)) for one in ("guarantee", "limit"))
    for resource, units in guarantee.items():
        if units > limit.get(resource, units):
            raise ValueError(f"{key}.guarantee.{resource}: must be at most its limit ({limit[resource]}), not {units}")
    return Tenant(float(weight), guarantee, limit)


def _amounts(key: str, value: Any) -> Amounts:
    given = _mapping(key, value, "{nvidia.com/gpu: 4}")
    for resource, units in given.items():
        if not isinstance(resource, str) or not _RESOURCE.fullmatch(resource):
            raise ValueError(f"{key}: {str(resource)[:80]!r} is not an extended resource such as nvidia.com/gpu")
        if isinstance(units, bool) or not isinstance(units, int) or not 0 <= units <= MOST_UNITS:
            raise ValueError(
                f"{key}.{resource}: must be a whole number from 0 to {MOST_UNITS}, not {str(units)[:40]!r}"
            )
    return dict(given)


def _mapping(key: str, value: Any, example: str) -> Mapping[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{key}: must be a mapping, as in {example}")
    return value


def _duration(key: str, value: Any) -> float:
    try:
        seconds = parse_duration(str(value))
    except ValueError as error:
        raise ValueError(f"{key}: {error}, not {str(value)[:40]!r}") from error
    if not 0.0 <= seconds <= LONGEST:
        raise ValueError(f"{key}: must be at most {format_duration(LONGEST)}, not {str(value)[:40]!r}")
    return seconds


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
