"""Count GPUs in thousandths for the allocator, while some replica has a part of one. Pure.

Parts are added up by node. Which parts fit on one GPU, the kubelet decides: a Pod whose part fits on none waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autoscaler.gpu.allocator import Allocation
from autoscaler.gpu.claims import AllocationSettings, Claim, Gift, Place
from autoscaler.gpu.units import Amounts
from clusters.base.quantities import THOUSANDTHS


def has_parts(claims: Sequence[Claim]) -> bool:
    """Return whether a claim has a part of a GPU."""
    return any(claim.shape.part for claim in claims)


def places_in_parts(places: Sequence[Place]) -> list[Place]:
    """Return the places with their thousandths."""
    return [replace(place, units=place.units * THOUSANDTHS) for place in places]


def claims_in_parts(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims with thousandths."""
    return [
        claim if claim.shape.part else replace(claim, shape=replace(claim.shape, units=claim.shape.units * THOUSANDTHS))
        for claim in claims
    ]


def settings_in_parts(settings: AllocationSettings) -> AllocationSettings:
    """Return the settings with thousandths. Prices stay: shares are compared with each other only."""
    tenants = {
        name: replace(tenant, guarantee=_in_parts(tenant.guarantee), limit=_in_parts(tenant.limit))
        for name, tenant in settings.tenants.items()
    }
    return replace(settings, tenants=tenants, reserve=_in_parts(settings.reserve))


def in_units(allocation: Allocation) -> Allocation:
    """Return the grants with GPUs instead of thousandths."""
    grants = {
        name: grant._replace(
            total=grant.total / THOUSANDTHS,
            others=grant.others / THOUSANDTHS,
            gifts=tuple(Gift(gift.giver, gift.units / THOUSANDTHS) for gift in grant.gifts),
        )
        for name, grant in allocation.grants.items()
    }
    return replace(allocation, grants=grants)


def _in_parts(amounts: Mapping[str, int]) -> Amounts:
    return {resource: units * THOUSANDTHS for resource, units in amounts.items()}
