"""Requests that hang: from which age a request in flight counts as failed, and what keeps `promote` from a step. Pure.

    a request in flight, of either version      counts as
    older than what counts as slow              slow (`judge.compare_latency`)
    older than `hanging_age`                    an error as well, for as long as it has no answer
    else                                        nothing: nobody knows yet

Callers that send or read slowly are not in flight here: the model has not got, or has given, all that it has to.

`onInsufficientTraffic: promote` takes a version as good when too few requests speak against it. It does not pass a step
where the candidate got requests and answered none of them well, or where more of its requests hang than of the stable
version's.
"""

from __future__ import annotations

from dataclasses import replace

from clusters.base.latency_buckets import bucket_of
from serving.reconciler.rollout.judging.counts import Counts

LEAST_AGE = 10.0
"""s; a model that answers within milliseconds may have a pause, of its runtime or its machine, that takes seconds."""
TIMES_SLOWER = 10.0
"""Of the stable version's latency at the judge's quantile: a model that takes a minute may take some minutes."""
CHANCE = 0.01
"""Chance that a candidate that refuses as many requests as the stable version is taken for one that refuses all."""


def hanging_age(stable: Counts, quantile: float) -> float:
    """Return the seconds from which a request in flight counts as failed."""
    return max(LEAST_AGE, TIMES_SLOWER * (stable.quantile(quantile) or 0.0))


def hanging(counts: Counts, age: float) -> int:
    """Return the number of requests in flight for more than `age` seconds, to the precision of a bucket (9 %)."""
    return counts.pending_above(bucket_of(age))


def with_hanging(counts: Counts, age: float) -> Counts:
    """Return the counts with each request that hangs counted as an error."""
    number = hanging(counts, age)
    return replace(counts, requests=counts.requests + number, errors=counts.errors + number)


def unanswered(stable: Counts, candidate: Counts, age: float, allowed: float) -> str:
    """Return why the candidate cannot pass for want of traffic; empty when nothing speaks against it.

    `allowed` is by how much the candidate's share of hanging requests may exceed the stable version's.
    """
    waits = f"{candidate.in_flight} in flight, the oldest for about {candidate.oldest:.3g} s"
    if candidate.requests == candidate.errors:  # no good answer
        failed = candidate.errors + candidate.left
        if failed or candidate.in_flight:
            return f"no request to the candidate was answered well: {candidate.errors} failed, {waits}"
        if _refuses_all(stable, candidate):
            return (
                f"the candidate refused all {candidate.refused} requests (4xx), the stable version "
                f"{stable.refused} of {stable.refused + stable.requests}"
            )
    if _share(candidate, age) > _share(stable, age) + allowed:
        return f"{hanging(candidate, age)} requests to the candidate hang: {waits}"
    return ""


def _share(counts: Counts, age: float) -> float:
    number = hanging(counts, age)
    return number / (counts.requests + number) if number else 0.0


def _refuses_all(stable: Counts, candidate: Counts) -> bool:
    """Whether it is no chance: callers' errors meet both versions alike."""
    share = stable.refused / (stable.refused + stable.requests) if stable.requests else 1.0
    return bool(candidate.refused) and share**candidate.refused < CHANCE
