"""Latency in buckets."""

from __future__ import annotations

import math

import pytest

from clusters.base.latency_buckets import LEAST, MOST, bucket_of, upper_edge


@pytest.mark.parametrize("bucket", [-100, -35, -1, 0, 1, 17, 96])
def test_a_bucket_holds_its_upper_edge_and_not_the_one_below(bucket: int) -> None:
    assert bucket_of(upper_edge(bucket)) == bucket
    assert bucket_of(upper_edge(bucket - 1) * 1.000001) == bucket


def test_eight_buckets_double_the_latency() -> None:
    assert upper_edge(bucket_of(0.08)) == pytest.approx(2 * upper_edge(bucket_of(0.04)))
    assert upper_edge(1) / upper_edge(0) == pytest.approx(1.0905, abs=1e-4)


@pytest.mark.parametrize("seconds", [0.0, -1.0, -math.inf, math.nan, 1e-9])
def test_what_is_no_latency_counts_in_the_least_bucket(seconds: float) -> None:
    assert bucket_of(seconds) == bucket_of(LEAST)


@pytest.mark.parametrize("seconds", [MOST, 1e9, math.inf])
def test_what_is_too_long_counts_in_the_last_bucket(seconds: float) -> None:
    assert bucket_of(seconds) == bucket_of(MOST)
