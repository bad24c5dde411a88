"""Count requests that hang, and decide whether they keep a step from passing for insufficient traffic. Pure.

    a request in flight, of either version      counts as
    older than the limit of slow answers        slow (`judge.compare_latency`)
    older than `hanging_age`                    also an error, until it is answered
    younger                                     nothing: its result is unknown

Requests of callers that send or read slowly are not in flight: the model has not received the whole request, or has
answered it already. A request whose answer is judged on its first token, but is not streamed, has no age: it is in
flight, but neither slow nor hanging. The server's own deadline makes it an error.

`onInsufficientTraffic: promote` accepts a version when too few requests were compared. It does not pass a step in which
the candidate answered none of its requests successfully, or in which more of its requests hang than of the stable
version's.
"""

from __future__ import annotations

from dataclasses import replace

from clusters.base.latency_buckets import bucket_of
from serving.reconciler.rollout.judging.counts import Counts

LEAST_AGE = 10.0
"""s; a pause of the runtime or the machine may take seconds, also for a model that answers within milliseconds."""
TIMES_SLOWER = 10.0
"""Multiple of the stable version's latency at the judge's quantile: one that takes a minute may take some minutes."""
CHANCE = 0.01
"""Chance that a candidate with the stable version's share of refusals is taken for one that refuses every request."""


def hanging_age(stable: Counts, quantile: float) -> float:
    """Return the age in seconds from which a request in flight counts as failed."""
    return max(LEAST_AGE, TIMES_SLOWER * (stable.quantile(quantile) or 0.0))


def hanging(counts: Counts, age: float) -> int:
    """Return the number of requests in flight for more than `age` seconds, to the precision of a bucket (9 %)."""
    return counts.pending_above(bucket_of(age))


def with_hanging(counts: Counts, age: float) -> Counts:
    """Return the counts with each request that hangs counted as an error."""
    number = hanging(counts, age)
    return replace(counts, requests=counts.requests + number, errors=counts.errors + number)


def unanswered(stable: Counts, candidate: Counts, age: float, allowed: float) -> str:
    """Return why the candidate cannot pass with insufficient traffic; empty when it can.

    `allowed` is by how much the candidate's share of hanging requests may exceed the stable version's.
    """
    waits = f"{candidate.in_flight} in flight"
    if candidate.oldest or not candidate.in_flight:
        waits += f", the oldest for about {candidate.oldest:.3g} s"
    if candidate.requests == candidate.errors:  # no good answer
        failed = candidate.errors + candidate.left
        if failed or candidate.in_flight:
            return f"no request to the candidate succeeded: {candidate.errors} failed, {waits}"
        # Callers' errors meet both versions alike: so many refusals are unlikely by chance.
        share = stable.refused / (stable.refused + stable.requests) if stable.requests else 1.0
        if candidate.refused and share**candidate.refused < CHANCE:
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
