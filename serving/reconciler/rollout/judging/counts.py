"""Counts of a version's requests: requests, errors, and latencies in the buckets of `clusters.base.latency_buckets`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from clusters.base.latency_buckets import LEAST, bucket_of, upper_edge

NO_AGE = bucket_of(LEAST)
"""The lowest bucket."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of the requests that the traffic split sent to a version.

    - `requests` were answered, `errors` of them with an error of the server (5xx).
    - `refused` were answered with an error of the caller (4xx); the callers of `left` disconnected before the answer.
      Neither are among `requests`.
    - `latency` counts answers without error, and callers that left, by the bucket of their time. Some answers of
      language models have no time, since their first token is not seen.
    - `between_tokens` counts streamed answers of language models by the bucket of the mean time between two tokens.
    - `pending` counts requests in flight by the bucket of their age. It is the present state; all others are totals.
    """

    requests: int = 0
    errors: int = 0
    latency: Mapping[int, int] = field(default_factory=dict)
    refused: int = 0
    left: int = 0
    pending: Mapping[int, int] = field(default_factory=dict)
    between_tokens: Mapping[int, int] = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        """Return the number of requests in flight."""
        return sum(self.pending.values())

    @property
    def oldest(self) -> float:
        """Return the age in seconds of the oldest request in flight, rounded up to its bucket's edge.

        It is 0 without any, and if all are in the lowest bucket, in which the model server counts those without an age.
        """
        bucket = max(self.pending, default=NO_AGE)
        return upper_edge(bucket) if bucket > NO_AGE else 0.0

    @property
    def timed(self) -> int:
        """Return the number of latencies."""
        return sum(self.latency.values())

    @property
    def tokens(self) -> Counts:
        """Return counts with the times between tokens as the latency."""
        return Counts(latency=self.between_tokens)

    def merge(self, other: Counts) -> Counts:
        """Return the sums of both."""
        return Counts(
            self.requests + other.requests,
            self.errors + other.errors,
            _sum(self.latency, other.latency),
            self.refused + other.refused,
            self.left + other.left,
            _sum(self.pending, other.pending),
            _sum(self.between_tokens, other.between_tokens),
        )

    def then(self, later: Counts) -> Counts:
        """Return the totals of both, one after the other, with the requests in flight of the later one."""
        return replace(self, pending={}).merge(later)

    def since(self, former: Counts) -> Counts:
        """Return the difference to `former`, an earlier reading of the same totals; never below 0."""
        return Counts(
            max(self.requests - former.requests, 0),
            max(self.errors - former.errors, 0),
            _grown(self.latency, former.latency),
            max(self.refused - former.refused, 0),
            max(self.left - former.left, 0),
            self.pending,
            _grown(self.between_tokens, former.between_tokens),
        )

    def pending_above(self, bucket: int) -> int:
        """Return the number of requests in flight that are older than the upper edge of the bucket."""
        return sum(count for one, count in self.pending.items() if one > bucket)

    def slower_than(self, bucket: int) -> int:
        """Return the number of latencies above the upper edge of the bucket."""
        return sum(count for one, count in self.latency.items() if one > bucket)

    def quantile_bucket(self, quantile: float) -> int | None:
        """Return the first bucket with `quantile` (0 to 1) of the latencies up to its upper edge; None without any."""
        wanted, seen = math.ceil(quantile * self.timed), 0
        for one, count in sorted(self.latency.items()):
            seen += count
            if seen >= wanted and seen:
                return one
        return None

    def quantile(self, quantile: float) -> float | None:
        """Return the latency in seconds at the quantile, rounded up to its bucket's edge (by at most 9 %), or None."""
        bucket = self.quantile_bucket(quantile)
        return None if bucket is None else upper_edge(bucket)


def to_json(counts: Counts) -> dict[str, Any]:
    """Return the totals as stored in a status, without the requests in flight."""
    apart = {name: count for name, count in (("refused", counts.refused), ("left", counts.left)) if count}
    between = {"interTokenLatency": _by_name(counts.between_tokens)} if counts.between_tokens else {}
    totals = {"requests": counts.requests, "errors": counts.errors, **apart}
    return {**totals, "latency": _by_name(counts.latency), **between}


def from_json(value: object) -> Counts:
    """Read counts that `to_json` wrote. Invalid values, written by other clients, count as 0."""
    if not isinstance(value, Mapping):
        return Counts()
    requests = _count(value.get("requests"))
    errors = min(_count(value.get("errors")), requests)
    return Counts(
        requests,
        errors,
        _histogram(value.get("latency")),
        _count(value.get("refused")),
        _count(value.get("left")),
        between_tokens=_histogram(value.get("interTokenLatency")),
    )


def _by_name(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(bucket): count for bucket, count in sorted(counts.items())}


def _histogram(value: object) -> dict[int, int]:
    pairs = value.items() if isinstance(value, Mapping) else ()
    read = {bucket: _count(count) for name, count in pairs if (bucket := _bucket(name)) is not None}
    return {bucket: count for bucket, count in sorted(read.items()) if count}


def _grown(now: Mapping[int, int], before: Mapping[int, int]) -> dict[int, int]:
    """Return by how much each bucket grew, without those that did not."""
    return {bucket: more for bucket, count in now.items() if (more := count - before.get(bucket, 0)) > 0}


def _sum(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {bucket: one.get(bucket, 0) + other.get(bucket, 0) for bucket in sorted(one.keys() | other.keys())}


def _bucket(name: object) -> int | None:
    try:
        return int(name) if isinstance(name, str | int) else None
    except ValueError:
        return None


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
