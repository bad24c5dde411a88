"""What a version answered: requests, errors, and latency in the buckets of `serving.apis.latency`. Pure values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serving.apis.latency import upper_edge


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of requests, of errors among them (5xx of the server's own), and of latencies by bucket.

    `latency` counts the answers whose time says something of the model: those that are no errors.
    """

    requests: int = 0
    errors: int = 0
    latency: Mapping[int, int] = field(default_factory=dict)

    @property
    def timed(self) -> int:
        """Number of latencies."""
        return sum(self.latency.values())

    def merge(self, other: Counts) -> Counts:
        """Both together."""
        buckets = self.latency.keys() | other.latency.keys()
        latency = {one: self.latency.get(one, 0) + other.latency.get(one, 0) for one in sorted(buckets)}
        return Counts(self.requests + other.requests, self.errors + other.errors, latency)

    def since(self, former: Counts) -> Counts:
        """What came after `former`, an earlier reading of the same totals; never below nothing."""
        latency = {one: count - former.latency.get(one, 0) for one, count in self.latency.items()}
        return Counts(
            max(self.requests - former.requests, 0),
            max(self.errors - former.errors, 0),
            {one: count for one, count in latency.items() if count > 0},
        )

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
    """As it stands in a status and in a server's statistics."""
    latency = {str(one): count for one, count in sorted(counts.latency.items())}
    return {"requests": counts.requests, "errors": counts.errors, "latency": latency}


def from_json(value: object) -> Counts:
    """The counts that `to_json` wrote; what is no number of something counts as none: it came from elsewhere."""
    if not isinstance(value, Mapping):
        return Counts()
    latency = value.get("latency")
    pairs = latency.items() if isinstance(latency, Mapping) else ()
    read = {bucket: _count(count) for name, count in pairs if (bucket := _bucket(name)) is not None}
    requests = _count(value.get("requests"))
    errors = min(_count(value.get("errors")), requests)
    return Counts(requests, errors, {bucket: count for bucket, count in sorted(read.items()) if count})


def _bucket(name: object) -> int | None:
    try:
        return int(name) if isinstance(name, str | int) else None
    except ValueError:
        return None


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
