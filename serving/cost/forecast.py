"""Forecast the cost of a model from its resources, its bounds and the prices. Pure.

The minimum is the cost of `minReplicas` all the time, and the maximum that of `maxReplicas`. Between them, the cost
depends on requests. `per_visit` is the cost of one request to a model at zero: one replica until it is scaled to zero
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from autoscaler.usage.meter import TYPE_SEPARATOR
from clusters.base.objects import NVIDIA_GPU
from clusters.base.quantities import parse_quantity
from serving.types.model import ModelSpec, sizes_of
from serving.types.resources import Resources
from serving.types.settings.prices import HOUR, Prices

HOURS_OF_MONTH: Final = 730.0
"""Hours of a month: 365 × 24 ÷ 12, as cloud providers count."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Costs: of one replica, and of the minimum and maximum number of replicas, for an hour; of one visit.

    `replica_by_type` has the cost of one replica on each type of GPU with a price of its own, for a model with GPUs.
    `idle` is the time in seconds that the last replica stays after the last request. It is None if there is always a
    replica, or if the autoscaler chooses the time.
    """

    replica: float
    least: float
    most: float
    per_visit: float | None
    idle: float | None
    currency: str
    replica_by_type: Mapping[str, float]

    @property
    def least_month(self) -> float:
        """Cost of the minimum number of replicas for a month."""
        return self.least * HOURS_OF_MONTH

    @property
    def most_month(self) -> float:
        """Cost of the maximum number of replicas for a month."""
        return self.most * HOURS_OF_MONTH


def make_forecast(spec: ModelSpec, prices: Prices) -> Forecast:
    """Return the forecast of a Model. With variants, each has the same bounds, and their costs are added."""
    hours = _hours(spec, prices)
    types = {kind: max(_hours(spec, prices, kind)) for kind in prices.gpu_types}
    scaling = spec.scaling
    stays = scaling.scale_to_zero_after if not scaling.min_replicas and scaling.scale_to_zero_after > 0 else None
    return Forecast(
        replica=max(hours),
        least=sum(hours) * scaling.min_replicas,
        most=sum(hours) * scaling.max_replicas,
        per_visit=max(hours) * stays / HOUR if stays is not None else None,
        idle=stays,
        currency=prices.currency,
        replica_by_type=types if _has_gpus(spec) else {},
    )


def _has_gpus(spec: ModelSpec) -> bool:
    workers = () if spec.workers is None else (spec.workers.resources,)
    return any(size.has_gpus for size in (*sizes_of(spec), *workers))


def _hours(spec: ModelSpec, prices: Prices, gpu_type: str = "") -> list[float]:
    """Return the cost of one replica of each variant for an hour, on GPUs of this type."""
    beside = 0.0 if spec.workers is None else spec.workers.count * _price(spec.workers.resources, prices, gpu_type)
    return [_price(size, prices, gpu_type) + beside for size in sizes_of(spec)]


def _price(resources: Resources, prices: Prices, gpu_type: str) -> float:
    """Return the cost of one Pod for an hour."""
    amounts = {name: float(parse_quantity(text)) for name, text in resources.amounts().items()}
    if resources.gpu_fraction:
        amounts[NVIDIA_GPU] = resources.gpu_fraction
    typed = {f"{name}{TYPE_SEPARATOR}{gpu_type}" if "/" in name else name: amount for name, amount in amounts.items()}
    return prices.of_second(typed) * HOUR
