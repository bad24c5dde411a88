"""One reading of one replica, and what makes a reading unfit to be believed.

The model server's `GET /stats` (management port) answers JSON with totals since its start: `busySeconds` is the
integral over time of its slots in use, queued requests included, so the difference of two readings is exact however
far apart they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from clusters.base.errors import KnodelError

LARGEST_TOTAL = 1e15  # slot-seconds or requests: 30 years of 10^6 slots; more is garbage such as 1e308


STAGES = ("imports", "load", "warmup")
LONGEST_STAGE = 1e7  # ms; nothing starts for hours
FORMAT: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")  # names of model formats; other text of a Pod is not passed on

DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")

Startup = dict[str, float | bool | None]
"""Of the page: ms of each stage that has ended, else 0; whether it was claimed; null for what is not known yet."""


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
    startup: Startup | None = None
    format: str | None = None
    digest: str | None = None


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
    format: str = ""  # of the model, where it tells that
    digest: str = ""  # of the model's files, likewise

    @property
    def in_flight(self) -> float:
        """Slots in use or waited for at the moment of the reading."""
        return self.active + self.queued


def parse_stats(body: bytes, at: float) -> Sample:
    """The reading in an answer of `/stats`. Raises BadSample."""
    try:
        stats = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSample(f"/stats did not answer with a reading: {error}") from error
    totals = (stats.busy_seconds, stats.requests, stats.active, stats.queued)
    stages = _stages(stats.startup)
    return checked(Sample(at, *totals, stages, format=known_format(stats.format), digest=_digest(stats.digest)))


def known_format(name: str | None) -> str:
    """The name of a format as it is passed on; empty where there is none."""
    return name if name is not None and FORMAT.fullmatch(name) else ""


def _digest(text: str | None) -> str:
    return text if text is not None and DIGEST.fullmatch(text) else ""


def _stages(startup: Startup | None) -> Mapping[str, float]:
    """The stages of the start that took any time; they are for people, so what makes no sense is left out."""
    said = ((name, (startup or {}).get(name)) for name in STAGES)
    numbers = ((name, value) for name, value in said if value is not None and not isinstance(value, bool))
    return {name: float(value) for name, value in numbers if 0.0 < value < LONGEST_STAGE}


def checked(sample: Sample) -> Sample:
    """The same reading. Raises BadSample when a number in it is NaN, infinite, negative or absurd."""
    for name in ("busy_seconds", "requests", "active", "queued"):
        value = getattr(sample, name)
        if not (math.isfinite(value) and 0.0 <= value <= LARGEST_TOTAL):
            raise BadSample(f"{name} is {value}: expected a number from 0 to {LARGEST_TOTAL:g}")
    return sample
