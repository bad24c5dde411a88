"""Latency histograms with exponential buckets, which servers count and the judge of a rollout compares.

The buckets are those of OpenTelemetry's exponential histogram at scale 3, and of Prometheus' native histogram of schema
3: bucket i holds (2^((i-1)/8), 2^(i/8)] seconds, so each bound is 9 % above the previous one.
"""

from __future__ import annotations

import math

PER_OCTAVE = 8
"""Buckets for each doubling: schema 3, which client_golang selects for a growth factor of 1.1."""
LEAST, MOST = 1e-6, 4096.0
"""s; values outside count in the outermost buckets, so there are at most 257 buckets."""

_ROUNDING = 1e-9
"""Share of a bucket: a bound belongs to the bucket below it despite the rounding of its logarithm."""


def bucket_of(seconds: float) -> int:
    """Return the bucket of a latency in seconds; negative values and NaN belong to the lowest bucket."""
    bounded = min(max(LEAST, seconds), MOST)  # in this order NaN becomes LEAST
    return math.ceil(math.log2(bounded) * PER_OCTAVE - _ROUNDING)


def upper_edge(bucket: int) -> float:
    """Return the upper bound of a bucket in seconds."""
    return float(2.0 ** (bucket / PER_OCTAVE))
