"""What is to be done about the members of one pool: pure, from what is seen to a `Plan` with its reasons.

A free member, by row from the top (claimed ones are never touched here: the claims' own reaper sees to them):

    ended, or a container restarted                        deleted: it may be dirty; counts as a failure
    its token is not of the present key                    deleted: no load call would be taken by it
    of another class than the seed's template              deleted: an old image or template is not claimed for long
    older than maxAge                                      deleted once a younger one is ready in its place
    more than wanted                                       deleted: what is not ready first, then the oldest of those
                                                           past their age, then the youngest

Without a seed nothing is created, and nothing is deleted that could not be replaced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final

from autoscaler.warmpool.pause import Pause
from autoscaler.warmpool.reasons import PoolReason, PoolRule
from autoscaler.warmpool.sizing.policy import Sizing
from autoscaler.warmpool.spec import PoolSpec

MEBIBYTE: Final = 2**20


class Fault(StrEnum):
    """Why a member goes, in the words of the log."""

    ENDED = "it ended"
    RESTARTED = "a container of it restarted"
    TOKEN = "its token is not of the present key"  # noqa: S105 - words
    CLASS = "its class is not the template's"
    AGE = "it is older than maxAge"
    EXCESS = "there are more than wanted"


FAILURES: Final = frozenset({Fault.ENDED, Fault.RESTARTED})
"""Faults that the next member of the same template may have too."""


@dataclass(frozen=True, slots=True)
class Member:
    """A Pod of the pool that is not being deleted; `waits` says why it does not start, if that is known."""

    name: str
    created: datetime
    pool_class: str
    ready: bool
    claimed: bool
    fault: Fault | None = None
    waits: str = ""


@dataclass(frozen=True, slots=True)
class Seed:
    """The Deployment that members are copied from; cores and bytes of one member; whether it serves as a member."""

    deployment: str
    pool_class: str
    cpu: Decimal
    memory: Decimal
    serves: bool


@dataclass(frozen=True, slots=True)
class Observed:
    """All that a plan is made of. `unseen` members were asked for and have not shown yet; `burst` may start at once."""

    spec: PoolSpec
    sizing: Sizing
    seed: Seed | None
    members: Sequence[Member]
    unseen: int
    pause: Pause | None
    burst: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`size` free members are wanted: create so many, delete these; the rest is for the status."""

    size: int
    create: int
    delete: tuple[tuple[Member, Fault], ...]
    ready: int
    starting: int
    claimed: int
    reasons: tuple[PoolReason, ...]


def plan(seen: Observed, now: datetime, monotonic: float) -> Plan:
    """The next step towards the pool that is wanted; repeated at each change, it ends where nothing is to be done."""
    free = [_judged(member, seen.seed) for member in seen.members if not member.claimed]
    faulty = [(member, member.fault) for member in free if member.fault is not None]
    pool = _Pool.of(seen, [member for member in free if member.fault is None], now)
    excess = pool.excess()
    delete = [*faulty, *((member, Fault.EXCESS) for member in excess)]
    if not excess and (aged := pool.replaced()) is not None:
        delete.append((aged, Fault.AGE))
    return Plan(
        size=pool.size,
        create=pool.missing(monotonic),
        delete=tuple(delete),
        ready=sum(member.ready for member in pool.members),
        starting=pool.starting,
        claimed=sum(member.claimed for member in seen.members),
        reasons=(*seen.sizing.reasons, *_budget_reasons(pool), *_obstacles(pool)),
    )


def _judged(member: Member, seed: Seed | None) -> Member:
    """The member with the fault of being of another class, where it has none of its own."""
    if member.fault is None and seed is not None and member.pool_class != seed.pool_class:
        return dataclasses.replace(member, fault=Fault.CLASS)
    return member


@dataclass(frozen=True, slots=True)
class _Pool:
    """The sound free members, and what they are to be."""

    seen: Observed
    members: Sequence[Member]
    aged: Sequence[Member]
    """Oldest first."""
    affordable: int | None

    @classmethod
    def of(cls, seen: Observed, members: Sequence[Member], now: datetime) -> _Pool:
        aged = [member for member in members if (now - member.created).total_seconds() >= seen.spec.max_age]
        return cls(seen, members, sorted(aged, key=_age), affordable(seen.spec, seen.seed))

    @property
    def size(self) -> int:
        """Free members wanted, of those that the budget holds."""
        wanted = self.seen.sizing.size
        return wanted if self.affordable is None else min(wanted, self.affordable)

    @property
    def can_create(self) -> bool:
        return self.seen.seed is not None and self.seen.seed.serves

    @property
    def starting(self) -> int:
        return sum(not member.ready for member in self.members) + self.seen.unseen

    @property
    def target(self) -> int:
        """Free members to have at this moment: to replace an old one, where possible, one more than the size."""
        refused = self.seen.pause is not None and self.seen.pause.rule is PoolRule.REFUSED
        room = self.affordable is None or self.size < self.affordable
        return self.size + int(bool(self.aged) and self.size > 0 and self.can_create and room and not refused)

    def missing(self, monotonic: float) -> int:
        """Members to create now."""
        pause = self.seen.pause
        if not self.can_create or (pause is not None and pause.holds(monotonic)):
            return 0
        burst = 1 if pause is not None else self.seen.burst  # after a failure one at a time, until one succeeds
        return max(0, min(self.target - len(self.members) - self.seen.unseen, burst - self.starting))

    def excess(self) -> Sequence[Member]:
        """Members to delete because they are too many; none while some have not shown: which to delete is seen then."""
        surplus = len(self.members) - self.target
        if surplus <= 0 or self.seen.unseen:
            return ()
        young = sorted((member for member in self.members if member not in self.aged), key=_age, reverse=True)
        order = sorted([*self.aged, *young], key=lambda member: member.ready)  # stable
        return order[:surplus]

    def replaced(self) -> Member | None:
        """The old member that goes now: as many as wanted are ready without it, or there is no room for one more."""
        if not self.aged or not self.can_create:
            return None
        if hopeless := [member for member in self.aged if not member.ready]:
            return hopeless[0]
        ready = sum(member.ready for member in self.members)
        if self.target > self.size:
            return self.aged[0] if ready > self.size else None
        return self.aged[0] if ready >= self.size and not self.starting and not self._failing else None

    @property
    def _failing(self) -> bool:
        return self.seen.pause is not None and self.seen.pause.rule is PoolRule.FAILING


def affordable(spec: PoolSpec, seed: Seed | None) -> int | None:
    """How many members the budget holds; None when it sets no limit."""
    if seed is None:
        return None
    bounds = ((spec.budget.cpu, seed.cpu), (spec.budget.memory, seed.memory))
    counts = [int(budget // request) for budget, request in bounds if budget is not None and request > 0]
    return min(counts, default=None)


def _age(member: Member) -> tuple[datetime, str]:
    return member.created, member.name


def _budget_reasons(pool: _Pool) -> Iterable[PoolReason]:
    seed = pool.seen.seed
    if seed is not None and pool.size < pool.seen.sizing.size:
        memory = float(seed.memory / MEBIBYTE)
        yield PoolReason(PoolRule.BUDGET, {"cpu": float(seed.cpu), "memory": memory, "size": pool.size})


def _obstacles(pool: _Pool) -> Iterable[PoolReason]:
    """What keeps the pool from being full, and what else goes on."""
    seed, pause = pool.seen.seed, pool.seen.pause
    if seed is None:
        yield PoolReason(PoolRule.NO_SEED)
    elif not seed.serves:
        yield PoolReason(PoolRule.NO_SERVER, {"deployment": seed.deployment})
    if pause is not None:
        yield pause.reason
    if stuck := sorted((member for member in pool.members if member.waits), key=_age):
        yield PoolReason(PoolRule.WAITING, {"pod": stuck[0].name, "what": stuck[0].waits})
    if pool.aged and pool.size:
        yield PoolReason(PoolRule.REPLACING, {"aged": len(pool.aged), "max_age": pool.seen.spec.max_age})
