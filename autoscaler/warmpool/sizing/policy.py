"""How many free members a pool should have: pure.

For `auto`, what the plan says that divides one budget between members and idle replicas (`planner`). Before enough is
known for one, the most starts that came within one refill time during the last hour: so many would have found a member
each, had the pool been full before them. In the first hour of a process, which has seen less, the size of before is
kept, so that a restart empties no pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from autoscaler.warmpool.reasons import PoolReason, PoolRule
from autoscaler.warmpool.sizing.arrivals import HORIZON, Arrival
from autoscaler.warmpool.sizing.planner import Balance, PoolView
from autoscaler.warmpool.sizing.shortage import peakedness_of
from autoscaler.warmpool.spec import PoolSpec

ASSUMED_REFILL: Final = 5.0
"""s from a member's creation to its readiness, until one was measured: between a fork (0.2 s) and a Pod (1–10 s)."""
LEAST_REFILL: Final = 1.0
"""s; Kubernetes writes both times in whole seconds, so that less cannot be told from it."""


@dataclass(frozen=True, slots=True)
class History:
    """What was seen of the starts: `arrivals` by time, `since` when they began to be noted (monotonic seconds), and
    the size that was wanted then.
    """

    arrivals: Sequence[Arrival]
    since: float
    size_before: int


@dataclass(frozen=True, slots=True)
class Sizing:
    """A number of free members, and why."""

    size: int
    reasons: tuple[PoolReason, ...]


def wanted_size(spec: PoolSpec, history: History, refill: float, now: float, planned: Balance | None = None) -> Sizing:
    """Free members to keep; `refill` is the seconds that a new one takes, `planned` the plan, where there is one."""
    if spec.size is not None:
        return Sizing(spec.size, (PoolReason(PoolRule.FIXED, {"size": spec.size}),))
    size, reason = _by_arrivals(history.arrivals, refill) if planned is None else _by_plan(planned)
    reasons = [reason]
    if now - history.since < HORIZON and size < history.size_before:
        size = history.size_before
        reasons.append(PoolReason(PoolRule.NEW, {"size": size}))
    bounded = min(spec.most, max(spec.least, size))
    if bounded != size:
        reasons.append(PoolReason(PoolRule.BOUNDS, {"least": spec.least, "most": spec.most, "size": bounded}))
    return Sizing(bounded, tuple(reasons))


def view_of(spec: PoolSpec, affordable: int | None, history: History, refill: float, now: float) -> PoolView:
    """The pool as the planner sees it; `affordable` is how many members its budget holds, None for no limit."""
    most = spec.most if spec.size is None else spec.size
    most = most if affordable is None else min(most, affordable)
    least = min(most, spec.least if spec.size is None else spec.size)
    since = max(now - HORIZON, history.since)
    times = [arrival.at for arrival in history.arrivals if arrival.at >= since]
    rate = len(times) / max(now - since, refill)
    return PoolView(least, most, refill, rate, peakedness_of(times, refill, since, now))


def peak(times: Sequence[float], within: float) -> int:
    """The most of the ascending `times` that lie in one span of `within` seconds."""
    most = first = 0
    for last, time in enumerate(times):
        while times[first] < time - within:
            first += 1
        most = max(most, last - first + 1)
    return most


def refill_time(measured: Sequence[float], former: float) -> float:
    """The usual one of the start times `measured` (seconds), `former` when there are none."""
    return max(LEAST_REFILL, median(measured)) if measured else former


def _by_plan(planned: Balance) -> tuple[int, PoolReason]:
    starts = 3_600.0 * planned.starts
    values = {"size": planned.size, "starts": starts, "missed": planned.missed, "price": planned.price}
    return planned.size, PoolReason(PoolRule.PLAN, values)


def _by_arrivals(arrivals: Sequence[Arrival], refill: float) -> tuple[int, PoolReason]:
    if not arrivals:
        return 0, PoolReason(PoolRule.QUIET, {"size": 0})
    size = peak([arrival.at for arrival in arrivals], refill)
    cold = sum(not arrival.claimed for arrival in arrivals)
    values = {"peak": size, "refill": refill, "starts": len(arrivals), "cold": cold, "size": size}
    return size, PoolReason(PoolRule.ARRIVALS, values)
