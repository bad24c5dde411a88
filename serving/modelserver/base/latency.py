"""Times of answers, counted once for two readers: by the bounds of Prometheus' page, and in the buckets of a judge.

The edges of both together cut time into cells. Each cell lies in one interval of either, so both are sums of cells.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from clusters.base.latency_buckets import LEAST, MOST, bucket_of, upper_edge

LATENCY_BOUNDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip
"""Seconds: from the fastest answer of a small model to the longest time that a request may take by default."""
_FIRST: Final = bucket_of(LEAST)
_LAST: Final = bucket_of(MOST)
_BUCKET_EDGES: Final = tuple(upper_edge(bucket) for bucket in range(_FIRST, _LAST + 1))
LATENCY_EDGES: Final = tuple(sorted({*LATENCY_BOUNDS, *_BUCKET_EDGES}))
"""Seconds: upper edges of the cells; one more cell is above all."""
_BOUND_OF: Final = (*(bisect_left(LATENCY_BOUNDS, edge) for edge in LATENCY_EDGES), len(LATENCY_BOUNDS))
_BUCKET_OF: Final = (*(_FIRST + bisect_left(_BUCKET_EDGES, edge) for edge in LATENCY_EDGES), _LAST)


def by_bound(cells: Sequence[int]) -> Sequence[int]:
    """Counts of cells as counts up to each of `LATENCY_BOUNDS` but above the one before, at last above all."""
    counts = [0] * (len(LATENCY_BOUNDS) + 1)
    for bound, count in zip(_BOUND_OF, cells, strict=True):
        counts[bound] += count
    return counts


def by_bucket(cells: Sequence[int]) -> Mapping[int, int]:
    """Counts of cells as counts of buckets, those that hold any."""
    counts: dict[int, int] = {}
    for bucket, count in zip(_BUCKET_OF, cells, strict=True):
        if count:
            counts[bucket] = counts.get(bucket, 0) + count
    return counts
