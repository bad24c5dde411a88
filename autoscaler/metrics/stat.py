"""One reading of one replica, and what makes a reading unfit to be believed.

The model server's `GET /stats` (management port) answers JSON with totals since its start: `busySeconds` is the
integral over time of its slots in use, queued requests included, so the difference of two readings is exact however
far apart they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from clusters.errors import KnodelError

LARGEST_TOTAL = 1e15  # slot-seconds or requests: 30 years of 10^6 slots; more is garbage such as 1e308


class BadSample(KnodelError):
    """What a replica reported is no reading: not JSON, not a number, NaN, infinite, negative or absurd."""


class _Stats(msgspec.Struct, rename="camel"):
    busy_seconds: float
    requests: float
    active: float = 0.0
    queued: float = 0.0
    slots: float = 0.0


_DECODER = msgspec.json.Decoder(_Stats)


@dataclass(frozen=True, slots=True)
class Sample:
    """A reading at `at` (monotonic seconds of the reader): totals in slot-seconds and requests, then slots now."""

    at: float
    busy_seconds: float
    requests: float
    active: float
    queued: float

    @property
    def in_flight(self) -> float:
        """Slots in use or waited for at the moment of the reading."""
        return self.active + self.queued


def parse_stats(body: bytes, at: float) -> Sample:
    """The reading in an answer of `/stats`. Raises BadSample."""
    try:
        stats = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadSample(f"/stats did not answer with a reading: {error}") from error
    return checked(Sample(at, stats.busy_seconds, stats.requests, stats.active, stats.queued))


def checked(sample: Sample) -> Sample:
    """The same reading. Raises BadSample when a number in it is NaN, infinite, negative or absurd."""
    for name in ("busy_seconds", "requests", "active", "queued"):
        value = getattr(sample, name)
        if not (math.isfinite(value) and 0.0 <= value <= LARGEST_TOTAL):
            raise BadSample(f"{name} is {value}: expected a number from 0 to {LARGEST_TOTAL:g}")
    return sample
