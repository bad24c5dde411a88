"""One reading of one replica, and what makes a reading unfit to be believed.

The model server's `GET /stats` (management port) answers JSON with totals since its start: `busySeconds` is the
integral over time of its slots in use, queued requests included, so the difference of two readings is exact however
far apart they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from clusters.errors import KnodelError

LARGEST_TOTAL = 1e15  # slot-seconds or requests: 30 years of 10^6 slots; more is garbage such as 1e308


STAGES = ("imports", "load", "warmup")
LONGEST_STAGE = 1e7  # ms; nothing starts for hours


class BadSample(KnodelError):
    """What a replica reported is no reading: not JSON, not a number, NaN, infinite, negative or absurd."""


class NoSample(KnodelError):
    """A replica did not answer in time, or not at all: that is neither zero nor failure of the replica."""


class NoPage(NoSample):
    """There is no such page: nobody listens at that port of the replica, or who does knows nothing of it."""


class _Stats(msgspec.Struct, rename="camel"):
    busy_seconds: float
    requests: float
    active: float = 0.0
    queued: float = 0.0
    slots: float = 0.0
    startup: dict[str, float | bool] | None = None


_DECODER = msgspec.json.Decoder(_Stats)


@dataclass(frozen=True, slots=True)
class Sample:
    """A reading at `at` (monotonic seconds of the reader): totals in slot-seconds and requests, then slots now.

    `lag`: seconds before `at` in which requests may have come that the reading does not know of.
    """

    at: float
    busy_seconds: float
    requests: float
    active: float
    queued: float
    startup: Mapping[str, float] | None = None  # ms of the stages of the replica's start, where it tells them
    lag: float = 0.0

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
    return checked(Sample(at, stats.busy_seconds, stats.requests, stats.active, stats.queued, _stages(stats.startup)))


def _stages(startup: Mapping[str, float | bool] | None) -> Mapping[str, float]:
    """The stages of the start that took any time; they are for people, so what makes no sense is left out."""
    said = ((name, (startup or {}).get(name, 0.0)) for name in STAGES)
    return {name: float(value) for name, value in said if not isinstance(value, bool) and 0.0 < value < LONGEST_STAGE}


def checked(sample: Sample) -> Sample:
    """The same reading. Raises BadSample when a number in it is NaN, infinite, negative or absurd."""
    for name in ("busy_seconds", "requests", "active", "queued"):
        value = getattr(sample, name)
        if not (math.isfinite(value) and 0.0 <= value <= LARGEST_TOTAL):
            raise BadSample(f"{name} is {value}: expected a number from 0 to {LARGEST_TOTAL:g}")
    return sample
