"""Response times counted once, read by Prometheus' bounds and by the judge's buckets."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections import Counter

import pytest

from clusters.base.latency_buckets import bucket_of
from serving.modelserver.base.latency import LATENCY_BOUNDS, LATENCY_EDGES, BucketCounter, by_bound, by_bucket

RANDOM = random.Random(7)
TIMES = [
    0.0,
    1e-9,
    5000.0,
    math.inf,
    *LATENCY_BOUNDS,
    *(RANDOM.lognormvariate(-4, 3) for _ in range(2000)),
]


@pytest.fixture
def cells() -> list[int]:
    """Return the counts of the times."""
    times = BucketCounter(LATENCY_EDGES)
    for seconds in TIMES:
        times.add(seconds)
    return list(times.counts)


def test_buckets_are_those_of_the_judge(cells: list[int]) -> None:
    assert by_bucket(cells) == Counter(map(bucket_of, TIMES))


def test_bounds_count_as_if_they_were_the_only_ones(cells: list[int]) -> None:
    expected = Counter(bisect_left(LATENCY_BOUNDS, seconds) for seconds in TIMES)
    assert list(by_bound(cells)) == [expected[bound] for bound in range(len(LATENCY_BOUNDS) + 1)]


def test_no_cell_crosses_a_bound_or_an_edge_of_a_bucket() -> None:
    assert tuple(sorted(set(LATENCY_EDGES))) == LATENCY_EDGES
    assert set(LATENCY_BOUNDS) <= set(LATENCY_EDGES)
