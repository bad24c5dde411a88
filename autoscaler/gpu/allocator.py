"""Distribute GPUs over the claims of Models, warm pools and training jobs, when they want more than there is. Pure.

Engines place, preempt and share devices. This module decides sizes and gives the reasons. Claims are granted replicas
band by band (`Band`): floors, serving, warm pools, the minimums of training jobs that wait, growth of elastic training.
Within a band a higher priority comes first. Claims of the same priority are filled by turns: the next replica goes to
the tenant that then has the least share for its weight, and there to the claim that then has the least share for its
weight. A share is money: units times their price, over all resources. Units within a guarantee do not count in the
share of the tenant. This is progressive filling (Ghodsi et al., "Dominant Resource Fairness", NSDI 2011) in whole
replicas, so nothing is rounded.

- A tenant's guarantee is filled before the bands. Units of it that the tenant does not want are lent, and reclaimed at
  once.
- Of two claims with equal shares, the one that holds its next replica keeps it. So a replica moves only if the
  gainer's share afterwards is at most that of the giver, as with Kueue's LessThanOrEqualToFinalShare. No two claims
  take a replica from each other by turns.
- Training grows only into units that were free for `settle` seconds, and not within `start_pause` after a reclaim. The
  growth of a job stays for `min_runtime`, unless a lower band needs it.
- A training job starts with its whole minimum. From then on the minimum is a floor, also before its Pods run.
- Grants never exceed what can be placed node by node (`paper`).
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.gpu.claims import AllocationSettings, Band, Claim, Gift, Grant, Place, Rule, Tenant
from autoscaler.gpu.paper import Paper
from autoscaler.gpu.units import Amounts


@dataclass(frozen=True, slots=True)
class AllocatorState:
    """The state that one call of `allocate` returns for the next one.

    demand    by resource: (time, units granted to all but growth) of the last `settle` seconds
    reclaims  by resource: when serving last took units from growth
    grown     by training job: when it was last granted more than before
    granted   by training job: the replicas of the last call
    """

    demand: Mapping[str, tuple[tuple[float, int], ...]] = field(default_factory=dict)
    reclaims: Mapping[str, float] = field(default_factory=dict)
    grown: Mapping[str, float] = field(default_factory=dict)
    granted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Allocation:
    """The grants by claim, the state for the next call, and the nodes where claims should give back replicas."""

    grants: Mapping[str, Grant]
    state: AllocatorState
    victims: Mapping[str, Mapping[str, int]]
    """By claim and node: replicas that it holds there and that others were granted the units of."""


def exceeds(places: Iterable[Place], claims: Iterable[Claim]) -> bool:
    """Return whether the wants exceed the units of some resource. If not, every claim may have what it wants.

    A resource without any place does not count. Sums do not show that a type is short, or that no node has room; then
    the scheduler lets Pods wait.
    """
    free: dict[str, int] = {}
    for place in places:
        free[place.resource] = free.get(place.resource, 0) + (place.units if place.open else 0)
    for claim in claims:
        if claim.shape.resource in free:
            free[claim.shape.resource] -= max(claim.want, claim.least) * claim.shape.amount
    return any(units < 0 for units in free.values())


def allocate(
    places: Sequence[Place],
    claims: Sequence[Claim],
    settings: AllocationSettings | None = None,
    state: AllocatorState | None = None,
    now: float = 0.0,
) -> Allocation:
    """Grant every claim its replicas at `now` (seconds, monotonic). Resources without any place are not limited.

    Example:
        node = Place("node-a", "nvidia.com/gpu", 4)
        shape = Shape("nvidia.com/gpu", 1)
        chat = Claim("Model default/chat", "default", "serving", shape, want=3)
        train = Claim("Job default/train", "default", "training", shape, want=4, least=1, held={"node-a": 4})
        found = allocate([node], [chat, train])
        found.grants["Model default/chat"].replicas  # 3
        found.grants["Job default/train"].replicas   # 1
    """
    known = {place.resource for place in places}
    limited = [claim for claim in claims if claim.shape.resource in known]
    run = _Run(places, sorted(limited, key=lambda claim: claim.name), settings or AllocationSettings(), now)
    run.fill(state or AllocatorState())
    free = {
        claim.name: Grant(max(claim.want, claim.least), claim.want, Rule.ALL, claim.shape.resource)
        for claim in claims
        if claim.shape.resource not in known
    }
    return Allocation({**run.grants(), **free}, run.next_state(), run.victims())


class _Filled:
    """A claim while it is filled: replicas granted, and those of them that stay on their nodes."""

    __slots__ = (
        "amount", "band", "claim", "granted", "guarantee", "holds", "keeps", "left", "limit", "of", "price", "resource",
        "rule", "stays", "step", "target", "tenant", "want",
    )  # fmt: skip

    def __init__(self, claim: Claim, price: float, tenant: Tenant) -> None:
        self.claim = claim
        self.tenant = tenant
        self.price = price  # of one replica
        self.step = price / claim.weight
        self.band, self.holds = claim.band, claim.holds
        self.resource, self.amount = claim.shape.resource, claim.shape.amount
        self.of = claim.tenant, self.resource
        self.guarantee = tenant.guarantee.get(self.resource, 0)
        self.limit = tenant.limit.get(self.resource, math.inf)
        self.target = 0  # up to how many replicas it is filled now
        self.want = max(claim.want, claim.least)
        self.granted = 0
        self.left = sorted(claim.stays.items()) if self.holds else []  # the rest of what is held and stays
        self.stays = sum(count for _, count in self.left)
        self.keeps: dict[str, int] = {}
        self.rule = Rule.SHORT

    def next_share(self) -> float:
        """Return the share with one more replica."""
        return (self.granted + 1) * self.step


_Turn = tuple[float, bool, int]
"""The order of a claim in its tenant: least next share, then who holds that replica, then by name, as a number."""
_Target = Callable[[_Filled], int]
"""Returns up to how many replicas a claim is filled in a band."""


def _want(one: _Filled) -> int:
    return one.want


def _held(one: _Filled) -> int:
    return min(one.claim.want, one.stays)


class _Run:
    """One call of `allocate`."""

    def __init__(
        self, places: Sequence[Place], claims: Sequence[Claim], settings: AllocationSettings, now: float
    ) -> None:
        self._settings = settings
        self._now = now
        self._paper = Paper(places, claims)
        types: defaultdict[str, set[str]] = defaultdict(set)
        for place in places:
            types[place.resource].add(place.type)
        self._filled = [
            _Filled(claim, self._price(claim, types[claim.shape.resource]), settings.tenant(claim.tenant))
            for claim in claims
        ]
        self._of_tenant: defaultdict[str, float] = defaultdict(float)  # tenant → money
        self._units: defaultdict[tuple[str, str], int] = defaultdict(int)  # tenant, resource → units
        self._free = {resource: self._paper.free(resource) for resource in {place.resource for place in places}}
        self._growth: defaultdict[str, int] = defaultdict(int)  # resource → units granted as growth
        self._allowed: dict[str, int] = {}  # resource → most of these units, with new replicas

    def _price(self, claim: Claim, types: Iterable[str]) -> float:
        """Return the price of a replica: of its first type, else of the most expensive type that it may get."""
        prices, shape = self._settings.prices, claim.shape
        default = prices.get(shape.resource, 1.0)
        if not prices:
            return shape.amount * default
        return shape.amount * max((prices.get(one, default) for one in shape.types or types), default=default)

    def fill(self, state: AllocatorState) -> None:
        """Grant replicas band by band."""
        self._state = state
        self._by_priority(self._filled, self._held_floor_of)  # a new floor takes nothing from those that are held
        self._by_priority(self._filled, self._floor_of)
        for name, tenant in sorted(self._settings.tenants.items()):
            if tenant.guarantee:
                self._fill_bands([one for one in self._filled if one.claim.tenant == name], tenant.guarantee)
        self._fill_bands(self._filled)
        self._measure_demand()
        growing = [one for one in self._filled if one.band is Band.GROWTH and one.granted >= one.claim.least]
        self._by_priority([one for one in growing if self._is_young(one)], _held)
        self._by_priority(growing, _want)

    def _held_floor_of(self, one: _Filled) -> int:
        floor = self._floor_of(one)
        return floor if one.claim.kind == "training" else min(floor, one.stays)

    def _floor_of(self, one: _Filled) -> int:
        claim = one.claim
        starts = claim.kind == "training" and not claim.running
        return 0 if starts and self._state.granted.get(claim.name, 0) < claim.least else claim.least

    def _fill_bands(self, group: Sequence[_Filled], most: Amounts | None = None) -> None:
        """Fill all bands but growth."""
        for band in (Band.SERVING, Band.POOL):
            self._by_priority([one for one in group if one.band is band], _want, most)
        self._start_gangs(group, most)

    def _by_priority(self, group: Sequence[_Filled], wanted: _Target, most: Amounts | None = None) -> None:
        """Fill the claims of a band up to what `wanted` returns; `most` limits the units of their tenant."""
        ranks: defaultdict[int, list[_Filled]] = defaultdict(list)
        for one in group:
            one.target = wanted(one)
            if one.granted < one.target:
                ranks[one.claim.priority].append(one)
        for rank in sorted(ranks, reverse=True):
            self._by_turns(ranks[rank], most)

    def _by_turns(self, group: Sequence[_Filled], most: Amounts | None) -> None:
        """Fill claims up to their targets, progressively. They are sorted by name."""
        queues: defaultdict[str, list[_Turn]] = defaultdict(list)
        for number, one in enumerate(group):
            queues[one.claim.tenant].append((one.next_share(), not one.left, number))
        for queue in queues.values():
            heapq.heapify(queue)
        tenants = [self._tenant_turn(name, queue[0], group) for name, queue in queues.items()]
        heapq.heapify(tenants)
        while tenants:
            name = tenants[0][-1]
            queue = queues[name]
            number = queue[0][-1]
            one = group[number]
            if self._give(one, most) and one.granted < one.target:
                heapq.heapreplace(queue, (one.next_share(), not one.left, number))
            else:
                heapq.heappop(queue)
            if queue:
                heapq.heapreplace(tenants, self._tenant_turn(name, queue[0], group))
            else:
                heapq.heappop(tenants)

    def _tenant_turn(self, name: str, first: _Turn, group: Sequence[_Filled]) -> tuple[float, bool, str]:
        one = group[first[-1]]
        return (self._of_tenant[name] + one.price) / one.tenant.weight, first[1], name

    def _give(self, one: _Filled, most: Amounts | None) -> bool:
        """Grant one more replica, if it fits and is allowed."""
        allowed = self._may_have(one, most)
        if not allowed or not self._put(one):
            one.rule = Rule.SHORT if allowed else one.rule
            return False
        resource, amount = one.resource, one.amount
        if one.band is Band.GROWTH and one.granted >= one.claim.least:
            self._growth[resource] += amount
        one.granted += 1
        self._units[one.of] += amount
        self._free[resource] -= amount
        if self._units[one.of] > one.guarantee:
            self._of_tenant[one.claim.tenant] += one.price
        return True

    def _may_have(self, one: _Filled, most: Amounts | None) -> bool:
        """Return whether the next replica keeps the limits, and set the reason if it does not."""
        claim, resource, amount = one.claim, one.resource, one.amount
        after = self._units[one.of] + amount
        if most is not None and after > most.get(resource, 0):
            return False
        one.rule = Rule.SHORT
        if after > one.limit:
            one.rule = Rule.LIMIT
            return False
        if one.band is Band.SERVING:
            return True
        if one.band is Band.GROWTH and one.granted >= max(claim.least, one.stays):  # growth by a new replica
            allowed = self._allowed.get(resource)
            if allowed is not None and self._growth[resource] + amount > allowed:
                one.rule = Rule.SETTLING
                return False
        return one.granted < claim.least or self._free[resource] - amount >= self._settings.reserve.get(resource, 0)

    def _put(self, one: _Filled) -> bool:
        """Grant a replica where one is held, else a new one."""
        claim = one.claim
        if claim.shape.pods == 1:
            while one.left:
                node, count = one.left[0]
                one.left[0] = (node, count - 1)
                if count <= 1:
                    one.left.pop(0)
                if self._paper.keep(claim, node):
                    one.keeps[node] = one.keeps.get(node, 0) + 1
                    return True
        elif one.left:
            one.left.pop(0)
        return self._paper.place(claim.shape)

    def _start_gangs(self, group: Sequence[_Filled], most: Amounts | None) -> None:
        """Grant waiting training jobs their minimum as a whole, oldest first. Younger ones may pass for a while."""
        waiting = [one for one in group if one.band is Band.GROWTH and one.granted < one.claim.least]
        blocked: set[str] = set()
        for one in sorted(waiting, key=lambda one: (-one.claim.priority, one.claim.since, one.claim.name)):
            claim, resource = one.claim, one.resource
            one.rule = Rule.GANG
            if resource in blocked:
                continue
            money = self._of_tenant[claim.tenant]
            before, mark, left, keeps = one.granted, self._paper.mark(), list(one.left), dict(one.keeps)
            while one.granted < claim.least and self._give(one, most):
                pass
            if one.granted < claim.least:
                self._take_back(one, before)
                self._of_tenant[claim.tenant] = money
                self._paper.restore(mark)
                one.left, one.keeps = left, keeps
                one.rule = one.rule if one.rule is Rule.LIMIT else Rule.GANG
                is_old = self._now - claim.since > self._settings.patience
                if is_old and most is None and one.rule is Rule.GANG:
                    blocked.add(resource)

    def _take_back(self, one: _Filled, granted: int) -> None:
        units = (one.granted - granted) * one.amount
        self._units[one.claim.tenant, one.resource] -= units
        self._free[one.resource] += units
        one.granted = granted

    def _measure_demand(self) -> None:
        """Record what all but growth were granted, and find how much training may grow."""
        granted: defaultdict[str, int] = defaultdict(int)
        for one in self._filled:
            granted[one.resource] += one.granted * one.amount
        self._demand: dict[str, tuple[tuple[float, int], ...]] = {}
        self._demand_rose: set[str] = set()
        begin = self._now - self._settings.settle
        for resource, free in self._free.items():
            unknown = ((self._now, granted[resource] + free),)  # as if nothing had been free until now
            former = self._state.demand.get(resource, unknown)
            if granted[resource] > former[-1][1]:
                self._demand_rose.add(resource)
            levels = [*former, (self._now, granted[resource])]
            first = max((number for number, (at, _) in enumerate(levels) if at <= begin), default=0)
            recent = levels[first:]  # the first of them held until the next
            self._demand[resource] = tuple(
                level for number, level in enumerate(recent) if not number or level[1] != recent[number - 1][1]
            )
            paused = self._now - self._state.reclaims.get(resource, -math.inf) < self._settings.start_pause
            self._allowed[resource] = 0 if paused else free + granted[resource] - max(units for _, units in recent)

    def _is_young(self, one: _Filled) -> bool:
        grown = self._state.grown.get(one.claim.name)
        return grown is not None and self._now - grown < self._settings.min_runtime

    def grants(self) -> dict[str, Grant]:
        """Return the grants with their reasons."""
        gifts, found = self._gifts(), {}
        for one in self._filled:
            claim, shape = one.claim, one.claim.shape
            sums = self._paper.sums(shape)
            rule = one.rule
            if one.granted >= claim.want:
                rule = Rule.ALL
            elif sums.largest < shape.units:
                rule = Rule.NONE_FITS
            others = max(0, sums.total - sums.free - one.granted * shape.amount)
            gains = gifts.get(claim.name, ())
            found[claim.name] = Grant(one.granted, claim.want, rule, shape.resource, sums.total, others, gains)
        return found

    def _gifts(self) -> dict[str, tuple[Gift, ...]]:
        """Return who gives units for whom: gainers in the order of their bands, givers from the highest band."""
        order = sorted(self._filled, key=lambda one: (one.band, -one.claim.priority, one.claim.name))
        left: dict[str, int] = {}
        givers: defaultdict[str, list[str]] = defaultdict(list)  # by resource; the last one gives first
        for one in order:
            if one.granted < one.holds:
                left[one.claim.name] = (one.holds - one.granted) * one.amount
                givers[one.resource].append(one.claim.name)
        found: dict[str, tuple[Gift, ...]] = {}
        for one in order if givers else ():
            missing, queue = (one.granted - one.holds) * one.amount, givers[one.resource]
            given = []
            while missing > 0 and queue:
                units = min(missing, left[queue[-1]])
                given.append(Gift(queue[-1], units))
                left[queue[-1]] -= units
                missing -= units
                if not left[queue[-1]]:
                    queue.pop()
            if given:
                found[one.claim.name] = tuple(given)
        return found

    def victims(self) -> dict[str, dict[str, int]]:
        """Return the replicas that claims hold and were not granted any more, by node."""
        found = {}
        for one in self._filled:
            if one.holds > one.granted and one.claim.shape.pods == 1:
                lost = {
                    node: count - one.keeps.get(node, 0)
                    for node, count in one.claim.held.items()
                    if count > one.keeps.get(node, 0)
                }
                if lost:
                    found[one.claim.name] = lost
        return found

    def next_state(self) -> AllocatorState:
        """Return the state for the next call."""
        state, grown, granted, reclaims = self._state, {}, {}, dict(self._state.reclaims)
        for one in self._filled:
            claim = one.claim
            if claim.kind != "training":
                continue
            granted[claim.name] = one.granted
            if one.granted > max(claim.least, state.granted.get(claim.name, one.stays)):
                grown[claim.name] = self._now
            elif claim.name in state.grown:
                grown[claim.name] = state.grown[claim.name]
            # Jobs that grow at the expense of others reclaim nothing: a pause would undo that in the next call.
            if one.granted < _held(one) and one.resource in self._demand_rose:
                reclaims[one.resource] = self._now
        return AllocatorState(self._demand, reclaims, grown, granted)
