"""Forecast the cost of a model from its resources, its bounds and the prices. Pure.

The minimum is the cost of `minReplicas` all the time, and the maximum that of `maxReplicas`. Between them, the cost
depends on requests. `per_visit` is the cost of one request to a model at zero: one replica until it is scaled to zero
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from clusters.base.quantities import parse_quantity
from serving.types.model import ModelSpec
from serving.types.resources import Resources
from serving.types.settings.prices import HOUR, Prices

HOURS_OF_MONTH: Final = 730.0
"""Hours of a month: 365 × 24 ÷ 12, as cloud providers count."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Costs: of one replica, and of the minimum and maximum number of replicas, for an hour; of one visit.

    `idle` is the time in seconds that the last replica stays after the last request. It is None if there is always a
    replica, or if the autoscaler chooses the time.
    """

    replica: float
    least: float
    most: float
    per_visit: float | None
    idle: float | None
    currency: str

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
    sizes = [variant.resources for variant in spec.variants] or [spec.resources]
    beside = 0.0 if spec.workers is None else spec.workers.count * _price(spec.workers.resources, prices)
    hours = [_price(size, prices) + beside for size in sizes]
    scaling = spec.scaling
    stays = scaling.scale_to_zero_after if not scaling.min_replicas and scaling.scale_to_zero_after > 0 else None
    return Forecast(
        replica=max(hours),
        least=sum(hours) * scaling.min_replicas,
        most=sum(hours) * scaling.max_replicas,
        per_visit=max(hours) * stays / HOUR if stays is not None else None,
        idle=stays,
        currency=prices.currency,
    )


def _price(resources: Resources, prices: Prices) -> float:
    """Return the cost of one Pod for an hour."""
    return prices.of_second({name: float(parse_quantity(text)) for name, text in resources.amounts().items()}) * HOUR
