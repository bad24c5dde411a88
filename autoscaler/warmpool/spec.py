"""What a WarmPool asks for, as the pool manager reads it.

The API's own validation (serving) has refused what is wrong; what is still unreadable here, after an upgrade for
instance, counts as not said: a pool is not given up for one field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeVar

from autoscaler.warmpool.defaults import AUTO, MAX, MAX_AGE, MIN
from clusters.base.durations import parse_duration
from clusters.base.objects import Object
from clusters.base.quantities import parse_quantity

LARGEST: Final = 1_000
"""Members; a bound on nonsense, as for replicas."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resources:
    """Cores and bytes; None is no limit."""

    cpu: Decimal | None = None
    memory: Decimal | None = None


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """`size` None means `auto`: between `least` and `most`. `max_age` in seconds, `budget` for all free members."""

    size: int | None
    least: int
    most: int
    max_age: float
    budget: Resources


def read_spec(pool: Object) -> PoolSpec:
    """The spec of a WarmPool, with defaults."""
    spec = pool.get("spec") or {}
    most = _read(spec.get("max"), _count, MAX)
    least = _read(spec.get("min"), _count, min(MIN, most))
    budget = spec.get("budget")
    budget = budget if isinstance(budget, dict) else {}
    return PoolSpec(
        size=_read(spec.get("size"), _size, None),
        least=least,
        most=max(least, most),
        max_age=_read(spec.get("maxAge"), _age, MAX_AGE),
        budget=Resources(_read(budget.get("cpu"), _quantity, None), _read(budget.get("memory"), _quantity, None)),
    )


def requests_of(pod_spec: Object) -> tuple[Decimal, Decimal]:
    """Cores and bytes that a Pod asks for: the sum over its containers; a limit stands for a request not made."""
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
        raise TypeError("a truth value is no count")
    return min(LARGEST, max(0, int(value)))


def _size(value: Any) -> int | None:
    return None if value == AUTO else _count(value)


def _age(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError("an age is more than nothing")
    return seconds


def _quantity(value: Any) -> Decimal:
    return parse_quantity(str(value))
