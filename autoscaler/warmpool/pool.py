"""The plan for one pool: from its observed state to a `PoolPlan` with reasons. Pure.

A free member, by row from the top (claimed ones are left to the claims' own reaper):

    ended, or a container restarted                        deleted: it may be corrupted; counts as a failure
    its token does not match the present key               deleted: it would reject every load call
    of another class than the seed's template              deleted: an old image or template
    older than maxAge                                      deleted once a younger one is ready in its place
    surplus                                                deleted: those that are not ready first, then the oldest of
                                                           those past their age, then the youngest

Without a seed nothing is created, and nothing is deleted that could not be replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final

from autoscaler.scaling.multi_scaler import Limit
from autoscaler.warmpool.creation_backoff import CreationBackoff
from autoscaler.warmpool.reasons import PoolReason, PoolRule
from autoscaler.warmpool.sizing.policy import Sizing
from autoscaler.warmpool.spec import PoolSpec

MEBIBYTE: Final = 2**20


class Fault(StrEnum):
    """Why a member is deleted, for the log."""

    ENDED = "it ended"
    RESTARTED = "a container of it restarted"
    TOKEN = "its token does not match the present key"  # noqa: S105 - a message
    CLASS = "its class is not that of the template"
    AGE = "it is older than maxAge"
    EXCESS = "the pool has more members than needed"


FAILURES: Final = frozenset({Fault.ENDED, Fault.RESTARTED})
"""Faults that the next member of the same template may have too."""


@dataclass(frozen=True, slots=True)
class PoolMember:
    """A Pod of the pool that is not being deleted; `waits` is the reason why it does not start, if known."""

    name: str
    created: datetime
    pool_class: str
    ready: bool
    claimed: bool
    fault: Fault | None = None
    waits: str = ""


@dataclass(frozen=True, slots=True)
class PoolSeed:
    """The Deployment from which members are copied, the cores and bytes of one member, and whether it can serve as a
    member.
    """

    deployment: str
    pool_class: str
    cpu: Decimal
    memory: Decimal
    serves: bool


@dataclass(frozen=True, slots=True)
class PoolObservation:
    """The inputs of a plan. `unseen` members were requested and do not appear yet; at most `burst` may start at
    once. Free members beyond the `limit` of GPUs are deleted.
    """

    spec: PoolSpec
    sizing: Sizing
    seed: PoolSeed | None
    members: Sequence[PoolMember]
    unseen: int
    backoff: CreationBackoff | None
    burst: int
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The desired `size` in free members, members to create and to delete, and counts for the status."""

    size: int
    create: int
    delete: tuple[tuple[PoolMember, Fault], ...]
    ready: int
    starting: int
    claimed: int
    reasons: tuple[PoolReason, ...]


def plan(seen: PoolObservation, now: datetime, monotonic: float) -> PoolPlan:
    """Return the next step towards the desired state. Repeated after each change, it ends without actions."""
    faulty, sound = [], []
    for member in seen.members:
        fault = member.fault
        if fault is None and seen.seed is not None and member.pool_class != seen.seed.pool_class:
            fault = Fault.CLASS
        if member.claimed:
            continue
        if fault is not None:
            faulty.append((member, fault))
        else:
            sound.append(member)
    pool = _Pool.of(seen, sound, now)
    excess = pool.excess()
    delete = [*faulty, *((member, Fault.EXCESS) for member in excess)]
    if not excess and (aged := pool.replaced()) is not None:
        delete.append((aged, Fault.AGE))
    return PoolPlan(
        size=pool.size,
        create=pool.missing(monotonic),
        delete=tuple(delete),
        ready=sum(member.ready for member in pool.members),
        starting=pool.starting,
        claimed=sum(member.claimed for member in seen.members),
        reasons=(*seen.sizing.reasons, *_pool_reasons(pool)),
    )


@dataclass(frozen=True, slots=True)
class _Pool:
    """The faultless free members, and their targets."""

    seen: PoolObservation
    members: Sequence[PoolMember]
    aged: Sequence[PoolMember]
    """Oldest first."""
    affordable: int | None

    @classmethod
    def of(cls, seen: PoolObservation, members: Sequence[PoolMember], now: datetime) -> _Pool:
        aged = [member for member in members if (now - member.created).total_seconds() >= seen.spec.max_age]
        return cls(seen, members, sorted(aged, key=_age), affordable(seen.spec, seen.seed))

    @property
    def size(self) -> int:
        """The desired number of free members, within the budget."""
        bounds = (self.affordable, None if self.seen.limit is None else self.seen.limit.replicas)
        return min([self.seen.sizing.size, *(bound for bound in bounds if bound is not None)])

    @property
    def can_create(self) -> bool:
        return self.seen.seed is not None and self.seen.seed.serves

    @property
    def starting(self) -> int:
        return sum(not member.ready for member in self.members) + self.seen.unseen

    @property
    def target(self) -> int:
        """The free members to have now: one more than the size during the replacement of an old one, if possible."""
        refused = self.seen.backoff is not None and self.seen.backoff.rule is PoolRule.REFUSED
        room = self.seen.limit is None and (self.affordable is None or self.size < self.affordable)
        return self.size + int(bool(self.aged) and self.size > 0 and self.can_create and room and not refused)

    def missing(self, monotonic: float) -> int:
        """Return the number of members to create now."""
        backoff = self.seen.backoff
        if not self.can_create or (backoff is not None and backoff.holds(monotonic)):
            return 0
        burst = 1 if backoff is not None else self.seen.burst  # after a failure one at a time, until one succeeds
        return max(0, min(self.target - len(self.members) - self.seen.unseen, burst - self.starting))

    def excess(self) -> Sequence[PoolMember]:
        """Return the surplus members; none while requested members do not appear yet."""
        surplus = len(self.members) - self.target
        if surplus <= 0 or self.seen.unseen:
            return ()
        young = sorted((member for member in self.members if member not in self.aged), key=_age, reverse=True)
        order = sorted([*self.aged, *young], key=lambda member: member.ready)  # stable
        return order[:surplus]

    def replaced(self) -> PoolMember | None:
        """Return the old member to delete now: enough others are ready, or there is no room for one more."""
        if not self.aged or not self.can_create:
            return None
        if hopeless := [member for member in self.aged if not member.ready]:
            return hopeless[0]
        ready = sum(member.ready for member in self.members)
        if self.target > self.size:
            return self.aged[0] if ready > self.size else None
        failing = self.seen.backoff is not None and self.seen.backoff.rule is PoolRule.FAILING
        return self.aged[0] if ready >= self.size and not self.starting and not failing else None


def affordable(spec: PoolSpec, seed: PoolSeed | None) -> int | None:
    """Return how many members the budget holds; None without a limit."""
    if seed is None:
        return None
    bounds = ((spec.budget.cpu, seed.cpu), (spec.budget.memory, seed.memory))
    counts = [int(budget // request) for budget, request in bounds if budget is not None and request > 0]
    return min(counts, default=None)


def _age(member: PoolMember) -> tuple[datetime, str]:
    return member.created, member.name


def _pool_reasons(pool: _Pool) -> Iterable[PoolReason]:
    """Yield the reasons why the pool is smaller than desired or not full, and other events in progress."""
    seed, backoff = pool.seen.seed, pool.seen.backoff
    limit, planned = pool.seen.limit, pool.seen.sizing.size
    if limit is not None and pool.size < planned and pool.size == limit.replicas:
        yield PoolReason(PoolRule.GPU, {"why": limit.why, "size": pool.size})
    elif seed is not None and pool.size < planned:
        memory = float(seed.memory / MEBIBYTE)
        yield PoolReason(PoolRule.BUDGET, {"cpu": float(seed.cpu), "memory": memory, "size": pool.size})
    if seed is None:
        yield PoolReason(PoolRule.NO_SEED)
    elif not seed.serves:
        yield PoolReason(PoolRule.NO_SERVER, {"deployment": seed.deployment})
    if backoff is not None:
        yield backoff.reason
    if stuck := sorted((member for member in pool.members if member.waits), key=_age):
        yield PoolReason(PoolRule.WAITING, {"pod": stuck[0].name, "what": stuck[0].waits})
    if pool.aged and pool.size:
        yield PoolReason(PoolRule.REPLACING, {"aged": len(pool.aged), "max_age": pool.seen.spec.max_age})
