"""What a model will cost, before it is deployed: from its resources, its bounds and the prices. Pure.

At least what `minReplicas` hold all the time, at most what `maxReplicas` do; what lies in between depends on the
requests. One request to a model at zero holds one replica until it goes again: that is `per_visit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from clusters.base.quantities import parse_quantity
from serving.types.model import ModelSpec, Resources
from serving.types.settings.prices import HOUR, Prices

HOURS_OF_MONTH: Final = 730.0
"""365 × 24 ÷ 12, as cloud providers count."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Money: of one replica for an hour; of the least and the most replicas for an hour; of one visit.

    `idle` is how many seconds the last replica stays after the last request; None where there is always one, or where
    the autoscaler chooses.
    """

    replica: float
    least: float
    most: float
    per_visit: float | None
    idle: float | None
    currency: str

    @property
    def least_month(self) -> float:
        """Of the least replicas, for a month."""
        return self.least * HOURS_OF_MONTH

    @property
    def most_month(self) -> float:
        """Of the most replicas, for a month."""
        return self.most * HOURS_OF_MONTH


def make_forecast(spec: ModelSpec, prices: Prices) -> Forecast:
    """The forecast of a Model; with variants each of them has the same bounds, and they add up."""
    sizes = [variant.resources for variant in spec.variants] or [spec.resources]
    hours = [prices.of_second(replica_from(size)) * HOUR for size in sizes]
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


def replica_from(resources: Resources) -> dict[str, float]:
    """What one replica of these resources asks for: cores and bytes."""
    return {"cpu": float(parse_quantity(resources.cpu)), "memory": float(parse_quantity(resources.memory))}
