"""Counters of response times that serve both Prometheus and the judge of a rollout. Pure.

Prometheus reads counts by `LATENCY_BOUNDS`; the judge reads them by the buckets of `clusters.base.latency_buckets`.
`LATENCY_EDGES` holds the edges of both, which cut time into cells. Each cell lies in exactly one interval of either
scale, so both readings are sums of cells.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from clusters.base.latency_buckets import LEAST, MOST, bucket_of, upper_edge

LATENCY_BOUNDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip
"""Bounds in seconds, from the fastest response of a small model to the default timeout of a request."""
_FIRST: Final = bucket_of(LEAST)
_LAST: Final = bucket_of(MOST)
_BUCKET_EDGES: Final = tuple(upper_edge(bucket) for bucket in range(_FIRST, _LAST + 1))
LATENCY_EDGES: Final = tuple(sorted({*LATENCY_BOUNDS, *_BUCKET_EDGES}))
"""Upper edges of the cells in seconds; one more cell holds everything above the last edge."""
_BOUND_OF: Final = (*(bisect_left(LATENCY_BOUNDS, edge) for edge in LATENCY_EDGES), len(LATENCY_BOUNDS))
_BUCKET_OF: Final = (*(_FIRST + bisect_left(_BUCKET_EDGES, edge) for edge in LATENCY_EDGES), _LAST)


class BucketCounter:
    """Counts of numbers by upper bound, and the sum of the numbers."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count one number."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def counts(self) -> Sequence[int]:
        """Return the count of each interval (above the previous bound, up to this one), then the count above all."""
        return self._counts

    @property
    def total(self) -> int:
        """Return how many numbers were counted."""
        return sum(self._counts)

    @property
    def sum(self) -> float:
        """Return the sum of the numbers."""
        return self._sum


def by_bound(cells: Sequence[int]) -> Sequence[int]:
    """Return the counts of cells as counts by `LATENCY_BOUNDS`, in the form of `BucketCounter.counts`."""
    counts = [0] * (len(LATENCY_BOUNDS) + 1)
    for bound, count in zip(_BOUND_OF, cells, strict=True):
        counts[bound] += count
    return counts


def by_bucket(cells: Sequence[int]) -> Mapping[int, int]:
    """Return the counts of cells as counts by bucket of the judge, without empty buckets."""
    counts: dict[int, int] = {}
    for bucket, count in zip(_BUCKET_OF, cells, strict=True):
        if count:
            counts[bucket] = counts.get(bucket, 0) + count
    return counts
