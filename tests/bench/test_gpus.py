"""The claims of the benchmark of the allocator: more is wanted than there is, and all of what there is is granted."""

from __future__ import annotations

from autoscaler.gpu.allocator import allocate
from loadtests.bench.gpus import contended, fill_by_turns


def test_the_claims_contend_and_get_nearly_all_units() -> None:
    places, claims = contended(200)
    units = sum(place.units for place in places)
    wanted = sum(claim.want * claim.shape.amount for claim in claims)
    grants = allocate(places, claims).grants
    granted = sum(grants[claim.name].replicas * claim.shape.amount for claim in claims)
    assert wanted > 3 * units
    assert 0.95 * units <= granted <= units


def test_the_floor_gives_each_turn_to_the_least() -> None:
    assert fill_by_turns(3, 7) == [3, 2, 2]
