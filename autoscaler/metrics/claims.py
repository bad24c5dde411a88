"""What one replica says of the time since its last reading, and how much of that is believed. Pure.

Two bounds. A replica is never busier than `most`: a multiple of its slots, since its own queue is bounded too. And
among others it is taken for no more than `OUTLIER` times their median, or than its slots where that is more: the router
spreads requests, so one that says otherwise of itself lies, or counts what it has long answered.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.metrics.stat import Sample

MIN_INTERVAL: Final = 1e-3  # s: two readings nearer than that say nothing about the time between them
OUTLIER: Final = 3.0
"""Times the median of the others. Load over replicas differs by chance, and by a queue's length: not by so much."""
LEAST_OTHERS: Final = 3
"""Replicas of which a median says something: of two one alone may be the one that is wrong."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one replica says of the time since its last reading: slots, slot-seconds, requests.

    `stays`: slots used or waited for at both readings; `waits`: whether requests waited for a slot at both.
    """

    rate: float
    served: float
    requests: float
    busy: bool
    stays: float = 0.0
    waits: bool = False


def make_claim(before: Sample | None, now: Sample, most: float) -> Claim:
    """The claim of a replica with at most `most` slots in use or waited for.

    Its first reading, and one after its totals fell (a restart), counts by what is in flight at that moment.
    """
    if before is None or now.busy_seconds < before.busy_seconds or now.requests < before.requests:
        return Claim(min(now.in_flight, most), 0.0, 0.0, now.in_flight > 0.0 or now.requests > 0.0)
    elapsed = now.at - before.at
    served, requests = now.busy_seconds - before.busy_seconds, now.requests - before.requests
    rate = served / elapsed if elapsed >= MIN_INTERVAL else now.in_flight
    return Claim(
        rate=min(rate, most),
        served=min(served, most * max(elapsed, 0.0)),
        requests=requests,
        busy=now.in_flight > 0.0 or requests > 0.0,
        stays=min(before.in_flight, now.in_flight, most),
        waits=before.queued > 0.0 and now.queued > 0.0,
    )


def without_outliers(claims: Sequence[Claim], slots: float) -> list[Claim]:
    """The claims of one revision's replicas, of `slots` slots each, those of outliers cut down."""
    if len(claims) <= LEAST_OTHERS or max(max(one.rate, one.stays) for one in claims) <= slots:
        return list(claims)
    rates, stays = [one.rate for one in claims], [one.stays for one in claims]
    return [
        _cut(one, max(slots, OUTLIER * _of_others(rates, index)), max(slots, OUTLIER * _of_others(stays, index)))
        for index, one in enumerate(claims)
    ]


def _of_others(values: Sequence[float], index: int) -> float:
    return statistics.median([*values[:index], *values[index + 1 :]])


def _cut(claim: Claim, rate: float, stays: float) -> Claim:
    """The claim with at most these; what it served in the same proportion as the slots it had in use."""
    if claim.rate <= rate and claim.stays <= stays:
        return claim
    believed = min(1.0, rate / claim.rate) if claim.rate > 0.0 else 1.0
    return replace(claim, rate=claim.rate * believed, served=claim.served * believed, stays=min(claim.stays, stays))
