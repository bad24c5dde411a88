"""Latency as counts in buckets that grow by a fixed factor: what a server counts, and the judge of a rollout compares.

The buckets are those of OpenTelemetry's exponential histogram at scale 3, and of Prometheus' native histogram of schema
3: bucket i holds (2^((i-1)/8), 2^(i/8)] seconds, so that an edge is 9 % above the one before.
"""

from __future__ import annotations

import math

PER_OCTAVE = 8
"""Buckets for each doubling: schema 3, which client_golang takes when it is asked for a growth of 1.1."""
LEAST, MOST = 1e-6, 4096.0
"""s; what is below or above counts in the outermost bucket, so that there are at most 257 of them."""

_ROUNDING = 1e-9
"""Of a bucket: an edge lies in the bucket below it, however its logarithm is rounded."""


def bucket_of(seconds: float) -> int:
    """The bucket of a latency in seconds; a negative one or none (NaN) is the least."""
    bounded = min(max(LEAST, seconds), MOST)  # in this order NaN becomes the least
    return math.ceil(math.log2(bounded) * PER_OCTAVE - _ROUNDING)


def upper_edge(bucket: int) -> float:
    """The largest latency in seconds that the bucket holds."""
    return float(2.0 ** (bucket / PER_OCTAVE))
