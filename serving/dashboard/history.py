"""A day of history in tables of fixed size: requests, errors, response times and replicas, by model and version.

Each series has two rings: `FINE` for the last quarter of an hour and `COARSE` for the last day. A place of a ring holds
the number of its step since the epoch, so a place with an older number is empty. The tables start as zero pages, which
take memory only once they are written.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscaler.metrics.response_latency import quantile_of

FIELDS: Final = ("requests", "errors", "p50", "p99", "replicas")
"""Requests and errors a second, response times in seconds, ready replicas."""
MOST_SERIES: Final = 256
"""Series that are kept; the one without a reading for the longest time is replaced first."""


class Step(NamedTuple):
    """The places of a ring: `seconds` for each of `places`."""

    seconds: int
    places: int


FINE: Final = Step(5, 180)
COARSE: Final = Step(60, 1440)


class SeriesName(NamedTuple):
    """A version of a model; `revision` is empty for the whole model."""

    namespace: str
    model: str
    revision: str = ""


class Reading(NamedTuple):
    """A reading of a model's last interval: rates by second, times in seconds, NaN without a request."""

    requests: float
    errors: float
    p50: float
    p99: float
    replicas: float

    @property
    def error_share(self) -> float:
        """The share of requests that failed; NaN without a request."""
        return self.errors / self.requests if self.requests else math.nan


@dataclass(slots=True)
class Amount:
    """Responses in an interval: how many, how many failed, their times by bucket (`clusters.base.latency_buckets`)."""

    requests: int = 0
    errors: int = 0
    latency: Counter[int] = field(default_factory=Counter)

    def add(self, other: Amount) -> None:
        """Add the responses of `other`."""
        self.requests += other.requests
        self.errors += other.errors
        self.latency.update(other.latency)

    def per_second(self, seconds: float, replicas: float) -> Reading:
        """Return the reading of an interval of `seconds`."""
        p50, p99 = quantile_of(self.latency, 0.5), quantile_of(self.latency, 0.99)
        return Reading(self.requests / seconds, self.errors / seconds, p50, p99, replicas)


class _Ring:
    """One table: for each series the values of the last `step.places` steps."""

    def __init__(self, step: Step, series: int) -> None:
        self._step = step
        self._values: NDArray[np.float32] = np.zeros((series, step.places, len(FIELDS)), np.float32)
        self._steps: NDArray[np.int32] = np.zeros((series, step.places), np.int32)

    def put(self, series: int, at: float, reading: Reading) -> None:
        number = int(at // self._step.seconds)
        place = number % self._step.places
        self._values[series, place] = reading
        self._steps[series, place] = number

    def read(self, series: int, until: float) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the times (seconds since the epoch) and values of the places that are not empty, oldest first."""
        last = int(until // self._step.seconds)
        steps = self._steps[series]
        present = np.flatnonzero((steps > last - self._step.places) & (steps <= last))
        order = present[np.argsort(steps[present])]
        return steps[order].astype(np.int64) * self._step.seconds, self._values[series, order]

    def clear(self, series: int) -> None:
        self._steps[series] = 0


@dataclass(slots=True)
class _Open:
    """The step of the coarse ring that is not complete yet."""

    number: int
    seconds: float = 0.0
    replicas: float = 0.0
    amount: Amount = field(default_factory=Amount)


class History:
    """The readings of all models."""

    def __init__(self, most: int = MOST_SERIES) -> None:
        self._most = most
        self._places: OrderedDict[SeriesName, int] = OrderedDict()
        self._rings = {step: _Ring(step, most) for step in (FINE, COARSE)}
        self._open: dict[SeriesName, _Open] = {}
        self._latest: dict[SeriesName, tuple[float, Reading]] = {}

    def add(self, name: SeriesName, amount: Amount, seconds: float, replicas: int, now: float) -> None:
        """Add what a series did in the last `seconds` until `now` (seconds since the epoch)."""
        place = self._place(name)
        reading = amount.per_second(seconds, replicas)
        self._latest[name] = (now, reading)
        self._rings[FINE].put(place, now, reading)
        number = int(now // COARSE.seconds)
        part = self._open.get(name)
        if part is None or part.number != number:
            part = self._open[name] = _Open(number)
        part.seconds += seconds
        part.replicas = max(part.replicas, replicas)
        part.amount.add(amount)
        self._rings[COARSE].put(place, now, part.amount.per_second(part.seconds, part.replicas))

    def latest(self, name: SeriesName, since: float) -> Reading | None:
        """Return the last reading of a series, None if it is older than `since` (seconds since the epoch)."""
        at, reading = self._latest.get(name, (0.0, None))
        return reading if at >= since else None

    def read(self, name: SeriesName, step: Step, until: float) -> dict[str, list[float | None]]:
        """Return the columns `at` (seconds since the epoch) and `FIELDS` of a series, oldest first; None for NaN."""
        place = self._places.get(name)
        if place is None:
            return {"at": [], **{one: [] for one in FIELDS}}
        at, values = self._rings[step].read(place, until)
        columns = {one: _plain(values[:, index]) for index, one in enumerate(FIELDS)}
        return {"at": [float(one) for one in at], **columns}

    def versions(self, namespace: str, model: str) -> list[str]:
        """Return the revisions of a model that have readings."""
        return sorted(one.revision for one in self._places if one[:2] == (namespace, model) and one.revision)

    def forget(self, namespace: str, model: str) -> None:
        """Remove the series of a model that was deleted."""
        for name in [one for one in self._places if one[:2] == (namespace, model)]:
            self._drop(name)

    def _place(self, name: SeriesName) -> int:
        if name in self._places:
            self._places.move_to_end(name)
            return self._places[name]
        if len(self._places) < self._most:
            free = set(range(self._most)).difference(self._places.values())
            place = min(free)
        else:
            place = self._drop(next(iter(self._places)))
        for ring in self._rings.values():
            ring.clear(place)
        self._places[name] = place
        return place

    def _drop(self, name: SeriesName) -> int:
        self._open.pop(name, None)
        self._latest.pop(name, None)
        return self._places.pop(name)


def _plain(column: NDArray[np.float32]) -> list[float | None]:
    return [None if math.isnan(one) else round(float(one), 6) for one in column]
