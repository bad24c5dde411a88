"""The number of free members of a pool. Pure.

For `auto`, it is the plan's size (`planner`). While data for a plan is insufficient, it is the maximum number of starts
within one refill time during the last hour: with that many members, each start would have found one. In the first hour
of a process, the size is not reduced, so that a restart empties no pool.
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
"""Seconds from a member's creation to its readiness until one was measured: between a fork (0.2 s) and a Pod
(1–10 s).
"""
LEAST_REFILL: Final = 1.0
"""Seconds; Kubernetes writes both times in whole seconds, so shorter times are unknown."""


@dataclass(frozen=True, slots=True)
class StartHistory:
    """The recorded starts: `arrivals` by time, `since` when they are recorded (monotonic seconds), and the desired size
    at that time.
    """

    arrivals: Sequence[Arrival]
    since: float
    size_before: int


@dataclass(frozen=True, slots=True)
class Sizing:
    """A number of free members, and the reasons."""

    size: int
    reasons: tuple[PoolReason, ...]


def wanted_size(
    spec: PoolSpec, history: StartHistory, refill: float, now: float, planned: Balance | None = None
) -> Sizing:
    """Return the free members to keep; `refill` is the seconds of a member's start, `planned` the plan, if there is
    one.
    """
    if spec.size is not None:
        return Sizing(spec.size, (PoolReason(PoolRule.FIXED, {"size": spec.size}),))
    values: dict[str, float]
    if planned is not None:
        size, starts = planned.size, 3_600.0 * planned.starts
        values = {"size": size, "starts": starts, "missed": planned.missed, "price": planned.price}
        reasons = [PoolReason(PoolRule.PLAN, values)]
    elif history.arrivals:
        size = peak([arrival.at for arrival in history.arrivals], refill)
        cold = sum(not arrival.claimed for arrival in history.arrivals)
        values = {"peak": size, "refill": refill, "starts": len(history.arrivals), "cold": cold, "size": size}
        reasons = [PoolReason(PoolRule.ARRIVALS, values)]
    else:
        size, reasons = 0, [PoolReason(PoolRule.QUIET, {"size": 0})]
    if now - history.since < HORIZON and size < history.size_before:
        size = history.size_before
        reasons.append(PoolReason(PoolRule.NEW, {"size": size}))
    bounded = min(spec.most, max(spec.least, size))
    if bounded != size:
        reasons.append(PoolReason(PoolRule.BOUNDS, {"least": spec.least, "most": spec.most, "size": bounded}))
    return Sizing(bounded, tuple(reasons))


def view_of(spec: PoolSpec, affordable: int | None, history: StartHistory, refill: float, now: float) -> PoolView:
    """Return the planner's view of the pool; `affordable` is how many members its budget holds, None without a
    limit.
    """
    most = spec.most if spec.size is None else spec.size
    most = most if affordable is None else min(most, affordable)
    least = min(most, spec.least if spec.size is None else spec.size)
    since = max(now - HORIZON, history.since)
    times = [arrival.at for arrival in history.arrivals if arrival.at >= since]
    rate = len(times) / max(now - since, refill)
    return PoolView(least, most, refill, rate, peakedness_of(times, refill, since, now))


def peak(times: Sequence[float], within: float) -> int:
    """Return the maximum number of the ascending `times` within any span of `within` seconds."""
    most = first = 0
    for last, time in enumerate(times):
        while times[first] < time - within:
            first += 1
        most = max(most, last - first + 1)
    return most


def refill_time(measured: Sequence[float], former: float) -> float:
    """Return the median of the start times `measured` (seconds), or `former` without any."""
    return max(LEAST_REFILL, median(measured)) if measured else former
