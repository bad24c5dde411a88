"""The bill of a fleet of models: nodes of one pool that all share, against nodes that each model has for its peak.

Models take 1, 2 or 4 GPUs a replica, on nodes of 8. What they want follows the hours of the day, with peaks at
different
times and random bursts. Both fleets start every wanted replica at once, so requests wait equally long.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.gpu.allocator import allocate
from autoscaler.gpu.claims import Claim, Place, Shape

RESOURCE, NODE, INTERVAL, DAY = "nvidia.com/gpu", 8, 300.0, 86_400.0
"""Resource, GPUs of a node, seconds between two decisions, seconds of a day."""


@dataclass(frozen=True, slots=True)
class FleetModel:
    """A model: GPUs of one replica, and the replicas that it wants in each interval of the day."""

    name: str
    gpus: int
    wants: Sequence[int]


@dataclass(frozen=True, slots=True)
class FleetBill:
    """Nodes at the peak of each model, of the pool at its fixed size, and the mean of nodes with a replica on them."""

    own: int
    pool: int
    occupied: float
    missing: float
    """Share of the wanted replicas that the pool did not grant."""

    @property
    def saved(self) -> float:
        """How much cheaper the pool of fixed size is, in per cent."""
        return 100.0 * (1.0 - self.pool / self.own)


def make_fleet(models: int = 24, seed: int = 1) -> list[FleetModel]:
    """Return models of random size, peak and hour of the peak; most have their peak in the same working day."""
    chance = random.Random(seed)
    found = []
    for number in range(models):
        gpus, peak = chance.choice((1, 1, 2, 4)), chance.uniform(2.0, 16.0)
        hour, night = chance.gauss(14.0, 4.0), chance.uniform(0.05, 0.4)
        wants, burst = [], 1.0
        for step in range(int(DAY / INTERVAL)):
            day = 0.5 + 0.5 * math.cos(2.0 * math.pi * (step * INTERVAL / 3_600.0 - hour) / 24.0)
            burst = 1.6 if chance.random() < 0.01 else max(1.0, burst - 0.1)
            wants.append(round(peak * (night + (1.0 - night) * day) * burst))
        found.append(FleetModel(f"Model fleet/{number:02d}", gpus, wants))
    return found


def bill(models: Sequence[FleetModel]) -> FleetBill:
    """Return the bill: the pool has the fewest nodes with which nothing that is wanted is missing."""
    own = sum(math.ceil(max(model.wants) / (NODE // model.gpus)) for model in models)
    peaks = [sum(model.wants[step] * model.gpus for model in models) for step in range(len(models[0].wants))]
    pool = math.ceil(max(peaks) / NODE)
    while (played := _play(models, pool))[0] > 0.0:
        pool += 1
    return FleetBill(own, pool, played[1], played[0])


def _play(models: Sequence[FleetModel], nodes: int) -> tuple[float, float]:
    """Return the missing share and the mean of occupied nodes. The allocator places on paper; held replicas stay."""
    places = [Place(f"node-{number:02d}", RESOURCE, NODE) for number in range(nodes)]
    shapes = {gpus: Shape(RESOURCE, gpus) for gpus in (1, 2, 4)}
    held: dict[str, dict[str, int]] = {model.name: {} for model in models}
    missing = wanted = occupied = 0
    for step in range(len(models[0].wants)):
        claims = [
            Claim(model.name, "fleet", "serving", shapes[model.gpus], model.wants[step], held=held[model.name])
            for model in models
        ]
        grants = allocate(places, claims, None, None, step * INTERVAL).grants
        free = dict.fromkeys((place.node for place in places), NODE)
        for model in models:
            held[model.name] = _kept(held[model.name], grants[model.name].replicas)
            for node, replicas in held[model.name].items():
                free[node] -= replicas * model.gpus
        for model in sorted(models, key=lambda model: -model.gpus):  # the scheduler: best fit, large ones first
            for _ in range(grants[model.name].replicas - sum(held[model.name].values())):
                fits = [node for node, units in free.items() if units >= model.gpus]
                if fits:
                    node = min(fits, key=lambda node: (free[node], node))
                    free[node] -= model.gpus
                    held[model.name][node] = held[model.name].get(node, 0) + 1
            wanted += model.wants[step]
            missing += model.wants[step] - sum(held[model.name].values())
        occupied += sum(units < NODE for units in free.values())
    return missing / wanted, occupied / len(models[0].wants)


def _kept(held: dict[str, int], replicas: int) -> dict[str, int]:
    """Return the replicas that stay when a model shrinks: those on the nodes where it has the most."""
    kept = {}
    for node, count in sorted(held.items(), key=lambda item: (-item[1], item[0])):
        if stays := min(count, replicas):
            kept[node] = stays
            replicas -= stays
    return kept
