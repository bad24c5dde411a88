"""The load of one replica since its last reading, with bounds on implausible readings. Pure.

Two bounds apply. The load of a replica is at most a multiple of its slots, since its own queue is bounded. And among
several replicas it counts at most `OUTLIER` times the median of the others, or its slots if that is more. The router
spreads requests evenly, so a higher value is faulty or includes requests that were answered long ago.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.metrics.stat import Sample

MIN_INTERVAL: Final = 1e-3  # s: two readings closer than that do not determine a rate
OUTLIER: Final = 3.0
"""Maximum multiple of the median of the others. Load varies between replicas by chance and by queue length, but not
that much.
"""
LEAST_OTHERS: Final = 3
"""Minimum replicas for a median: of two, either may be the faulty one."""


@dataclass(frozen=True, slots=True)
class ReplicaRate:
    """The load of one replica since its last reading, in slots, slot-seconds and requests.

    `rate` is the average of the slots in use, `served` their slot-seconds. `stays` is the slots used or waited for at
    both readings; `waits` is whether requests waited for a slot at both.
    """

    rate: float
    served: float
    requests: float
    busy: bool
    stays: float = 0.0
    waits: bool = False


def rate_between(before: Sample | None, now: Sample, most: float) -> ReplicaRate:
    """Return the load of a replica with at most `most` slots in use or waited for.

    For its first reading, and for one whose totals fell (a restart), the load is what is in flight at that time.
    """
    if before is None or now.busy_seconds < before.busy_seconds or now.requests < before.requests:
        return ReplicaRate(min(now.in_flight, most), 0.0, 0.0, now.in_flight > 0.0 or now.requests > 0.0)
    elapsed = now.at - before.at
    served, requests = now.busy_seconds - before.busy_seconds, now.requests - before.requests
    rate = served / elapsed if elapsed >= MIN_INTERVAL else now.in_flight
    return ReplicaRate(
        rate=min(rate, most),
        served=min(served, most * max(elapsed, 0.0)),
        requests=requests,
        busy=now.in_flight > 0.0 or requests > 0.0,
        stays=min(before.in_flight, now.in_flight, most),
        waits=before.queued > 0.0 and now.queued > 0.0,
    )


def limit_outliers(claims: Sequence[ReplicaRate], slots: float) -> list[ReplicaRate]:
    """Return the loads of one revision's replicas, of `slots` slots each, with outliers reduced."""
    if len(claims) <= LEAST_OTHERS or max(max(one.rate, one.stays) for one in claims) <= slots:
        return list(claims)
    rates, stays = [one.rate for one in claims], [one.stays for one in claims]
    return [
        _cut(one, max(slots, OUTLIER * _of_others(rates, index)), max(slots, OUTLIER * _of_others(stays, index)))
        for index, one in enumerate(claims)
    ]


def _of_others(values: Sequence[float], index: int) -> float:
    return statistics.median([*values[:index], *values[index + 1 :]])


def _cut(claim: ReplicaRate, rate: float, stays: float) -> ReplicaRate:
    """Return the load reduced to these limits; what it served is reduced in the same proportion."""
    if claim.rate <= rate and claim.stays <= stays:
        return claim
    share = min(1.0, rate / claim.rate) if claim.rate > 0.0 else 1.0
    return replace(claim, rate=claim.rate * share, served=claim.served * share, stays=min(claim.stays, stays))
