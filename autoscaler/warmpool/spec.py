"""The spec of a WarmPool, as the pool manager reads it.

The API's validation (serving) rejects invalid specs. A field that is unreadable here, for instance after an upgrade,
gets its default, so that one field does not disable a pool. The validation uses the same defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeVar

from clusters.base.durations import parse_duration
from clusters.base.objects import Object
from clusters.base.quantities import parse_quantity

AUTO: Final = "auto"
"""`spec.size`, also if absent: as many members as measured arrivals and start times require."""
MIN: Final = 1
"""Minimum members of `auto`: users notice the first start after a quiet night most."""
MAX: Final = 4
"""Maximum members of `auto`: equal to the default maximum replicas of a Model."""
MAX_AGE: Final = 86_400.0
"""Seconds (a day) until a member is replaced, which bounds leaks and staleness of idle processes."""
LARGEST: Final = 1_000
"""Maximum members, which limits the effect of errors, as for replicas."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PoolBudget:
    """Cores and bytes; None means no limit."""

    cpu: Decimal | None = None
    memory: Decimal | None = None


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """The spec. A `size` of None means `auto`: between `least` and `most`. `max_age` is in seconds, `budget` for all
    free members.
    """

    size: int | None
    least: int
    most: int
    max_age: float
    budget: PoolBudget


def read_spec(pool: Object) -> PoolSpec:
    """Return the spec of a WarmPool, with defaults."""
    spec = pool.get("spec") or {}
    most = _read(spec.get("max"), _count, MAX)
    least = _read(spec.get("min"), _count, min(MIN, most))
    budget = spec.get("budget")
    budget = budget if isinstance(budget, dict) else {}
    return PoolSpec(
        size=_read(spec.get("size"), lambda value: None if value == AUTO else _count(value), None),
        least=least,
        most=max(least, most),
        max_age=_read(spec.get("maxAge"), _age, MAX_AGE),
        budget=PoolBudget(_read(budget.get("cpu"), _quantity, None), _read(budget.get("memory"), _quantity, None)),
    )


def requests_of(pod_spec: Object) -> tuple[Decimal, Decimal]:
    """Return the cores and bytes that a Pod requests: the sum over its containers; a limit is the default of a
    request.
    """
    cpu = memory = Decimal(0)
    for container in pod_spec.get("containers") or ():
        resources = container.get("resources") or {}
        amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        cpu += _read(amounts.get("cpu"), _quantity, Decimal(0))
        memory += _read(amounts.get("memory"), _quantity, Decimal(0))
    return cpu, memory


def _read(value: Any, reader: Callable[[Any], T], default: T) -> T:
    if value is None:
        return default
    try:
        return reader(value)
    except (TypeError, ValueError):
        return default


def _count(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError("a boolean is not a count")
    return min(LARGEST, max(0, int(value)))


def _age(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError("an age must be positive")
    return seconds


def _quantity(value: Any) -> Decimal:
    return parse_quantity(str(value))
