"""Which replicas get GPUs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.gpu.claims import Claim
from autoscaler.gpu.inventory import GpuNode
from autoscaler.gpu.units import Amounts


@dataclass(frozen=True)
class Tenant:
    weight: float = 1.0
    guarantee: Amounts = field(default_factory=dict)
    limit: Amounts = field(default_factory=dict)


@dataclass(frozen=True)
class AllocationSettings:
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    settle: float = 10.0
    min_runtime: float = 60.0
    reserve: Amounts = field(default_factory=dict)


@dataclass(frozen=True)
class GrantReason:
    message: str


@dataclass(frozen=True)
class Grant:
    replicas: int
    reason: GrantReason


@dataclass(frozen=True)
class AllocatorState:
    free_since: float = -1.0


@dataclass(frozen=True)
class Allocation:
    grants: Mapping[str, Grant] = field(default_factory=dict)
    state: AllocatorState = field(default_factory=AllocatorState)
    givers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    victims: Mapping[str, Sequence[str]] = field(default_factory=dict)


def _units(claim: Claim) -> int:
    return claim.shape.units * claim.shape.pods


def _capacity(nodes: Sequence[GpuNode], claims: Sequence[Claim]) -> Counter[str]:
    found: Counter[str] = Counter()
    for node in nodes:
        for resource, units in node.allocatable.items():
            if node.state == "Ready":
                found[resource] += units - node.held(resource)
    for claim in claims:
        found[claim.shape.resource] += _units(claim) * sum(claim.held.values())
    return found


def exceeds(nodes: Sequence[GpuNode], claims: Sequence[Claim]) -> bool:
    left = _capacity(nodes, claims)
    for claim in claims:
        left[claim.shape.resource] -= _units(claim) * claim.want
    return any(units < 0 for units in left.values())


def allocate(
    nodes: Sequence[GpuNode], claims: Sequence[Claim], settings: AllocationSettings, state: AllocatorState, now: float
) -> Allocation:
    left = _capacity(nodes, claims)
    total = Counter(left)
    granted: Counter[str] = Counter()
    order = {"serving": 1, "pool": 2, "training": 3}

    def give(claim: Claim, upto: int) -> None:
        units = _units(claim)
        more = min(upto - granted[claim.name], left[claim.shape.resource] // units)
        if more > 0:
            granted[claim.name] += more
            left[claim.shape.resource] -= more * units

    for claim in claims:
        if claim.running or claim.kind != "training":
            give(claim, min(claim.least, claim.want))
    for claim in sorted(claims, key=lambda one: (order[one.kind], -one.priority, one.since, one.name)):
        if claim.kind != "training":
            give(claim, claim.want)
        else:
            give(claim, claim.least)
    growing = [one for one in claims if one.kind == "training"]
    changed = True
    while changed:
        changed = False
        for claim in growing:
            before = granted[claim.name]
            give(claim, min(claim.want, before + 1))
            changed |= granted[claim.name] > before
    grants = {}
    giving = {c.name: sum(c.held.values()) - granted[c.name] for c in claims if sum(c.held.values()) > granted[c.name]}
    for claim in claims:
        who = ", ".join(f"{name} gives {number}" for name, number in sorted(giving.items()) if name != claim.name)
        resource = claim.shape.resource
        message = f"wants {claim.want} of {resource}, granted {granted[claim.name]} of {total[resource]}"
        grants[claim.name] = Grant(granted[claim.name], GrantReason(f"{message}; {who}" if who else message))
    gainers = [c.name for c in claims if granted[c.name] > sum(c.held.values())]
    return Allocation(grants, state, {name: giving for name in gainers})
