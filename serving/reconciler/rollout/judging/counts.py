"""What a version answered: requests, errors, and times in the buckets of `clusters.base.latency_buckets`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from clusters.base.latency_buckets import upper_edge


@dataclass(frozen=True, slots=True)
class Counts:
    """What a version made of the requests that the split sent to it.

    `requests` were answered, `errors` of them with an error of the server's own. `refused` were answered with an error
    of the caller's own (4xx), `left` are those whose caller left before the answer: neither are among the requests.
    `latency` counts the times by bucket, of answers that are no errors and of callers that left. `pending` counts
    requests in flight by their age; it says how things are now, the others are totals.
    """

    requests: int = 0
    errors: int = 0
    latency: Mapping[int, int] = field(default_factory=dict)
    refused: int = 0
    left: int = 0
    pending: Mapping[int, int] = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        """Number of requests in flight."""
        return sum(self.pending.values())

    @property
    def oldest(self) -> float:
        """Age in seconds of the oldest request in flight, rounded up to the edge of its bucket; 0 without any."""
        return upper_edge(max(self.pending)) if self.pending else 0.0

    @property
    def timed(self) -> int:
        """Number of latencies."""
        return sum(self.latency.values())

    def merge(self, other: Counts) -> Counts:
        """Return both together."""
        return Counts(
            self.requests + other.requests,
            self.errors + other.errors,
            _sum(self.latency, other.latency),
            self.refused + other.refused,
            self.left + other.left,
            _sum(self.pending, other.pending),
        )

    def then(self, later: Counts) -> Counts:
        """Return the totals of both, one after the other, with the requests in flight of the later one."""
        return replace(self, pending={}).merge(later)

    def since(self, former: Counts) -> Counts:
        """Return what came after `former`, an earlier reading of the same totals; never below nothing."""
        latency = {one: count - former.latency.get(one, 0) for one, count in self.latency.items()}
        return Counts(
            max(self.requests - former.requests, 0),
            max(self.errors - former.errors, 0),
            {one: count for one, count in latency.items() if count > 0},
            max(self.refused - former.refused, 0),
            max(self.left - former.left, 0),
            self.pending,
        )

    def pending_above(self, bucket: int) -> int:
        """Return the number of requests in flight that are older than the upper edge of the bucket."""
        return sum(count for one, count in self.pending.items() if one > bucket)

    def slower_than(self, bucket: int) -> int:
        """Number of latencies above the upper edge of the bucket."""
        return sum(count for one, count in self.latency.items() if one > bucket)

    def quantile_bucket(self, quantile: float) -> int | None:
        """The first bucket up to whose upper edge `quantile` (0 to 1) of the latencies lie; None without any."""
        wanted, seen = math.ceil(quantile * self.timed), 0
        for one, count in sorted(self.latency.items()):
            seen += count
            if seen >= wanted and seen:
                return one
        return None

    def quantile(self, quantile: float) -> float | None:
        """Latency in seconds at the quantile, rounded up to the edge of its bucket (at most 9 %); None without any."""
        bucket = self.quantile_bucket(quantile)
        return None if bucket is None else upper_edge(bucket)


def to_json(counts: Counts) -> dict[str, Any]:
    """Return the totals as they stand in a status; what is in flight now is no part of it."""
    latency = {str(one): count for one, count in sorted(counts.latency.items())}
    apart = {name: count for name, count in (("refused", counts.refused), ("left", counts.left)) if count}
    return {"requests": counts.requests, "errors": counts.errors, **apart, "latency": latency}


def from_json(value: object) -> Counts:
    """The counts that `to_json` wrote; what is no number of something counts as none: it came from elsewhere."""
    if not isinstance(value, Mapping):
        return Counts()
    latency = value.get("latency")
    pairs = latency.items() if isinstance(latency, Mapping) else ()
    read = {bucket: _count(count) for name, count in pairs if (bucket := _bucket(name)) is not None}
    requests = _count(value.get("requests"))
    errors = min(_count(value.get("errors")), requests)
    latencies = {bucket: count for bucket, count in sorted(read.items()) if count}
    return Counts(requests, errors, latencies, _count(value.get("refused")), _count(value.get("left")))


def _sum(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {bucket: one.get(bucket, 0) + other.get(bucket, 0) for bucket in sorted(one.keys() | other.keys())}


def _bucket(name: object) -> int | None:
    try:
        return int(name) if isinstance(name, str | int) else None
    except ValueError:
        return None


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
