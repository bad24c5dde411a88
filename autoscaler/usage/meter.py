"""The usage of replicas by purpose, as stored in an annotation and read by bills. Pure.

The unit is pod-seconds: seconds times Pods that occupy resources of a node. By purpose:

    serving    ready, with at least one request
    idle       ready, without requests
    starting   not ready yet, or no longer ready
    canary     of a version under trial beside the stable one, regardless of its work

In addition, `claims` counts replicas from a warm pool; the pool's own bill is divided by them. Sums are kept by hour
and by day (UTC), for `KEPT_HOURS` and `KEPT_DAYS`, in a separate `Meter` for each size of replicas.

    {"at":"2026-01-01T14:30:00Z","meters":[{"replica":{"cpu":1.0,"memory":1073741824.0},
     "hours":{"2026-01-01T14":[12.5,40.0,3.1,0.0,1.0]},"days":{"2026-01-01":[12.5,40.0,3.1,0.0,1.0]}}]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from clusters.base.objects import Object, annotations_of, parse_timestamp, timestamp

USAGE_ANNOTATION: Final = "autoscaling.knodel.dev/usage"
"""On PodAutoscalers and WarmPools: their `Usage`, written at most once a minute."""

CANARY_ANNOTATION: Final = "autoscaling.knodel.dev/canary"
"""On the PodAutoscalers of a version under trial: `true`, written by the controller of rollouts."""

KEPT_HOURS: Final = 25
"""The present hour, and a day before it."""
KEPT_DAYS: Final = 32
"""The present day, and a month before it."""
KEPT_METERS: Final = 4
"""Sizes of replicas that are distinguished: sizes change with versions, and rarely."""
DIGITS: Final = 2
"""Decimal places of written pod-seconds."""
HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Spent:
    """Pod-seconds by purpose, and claims, in the order of the annotation."""

    serving: float = 0.0
    idle: float = 0.0
    starting: float = 0.0
    canary: float = 0.0
    claims: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.serving + other.serving,
            self.idle + other.idle,
            self.starting + other.starting,
            self.canary + other.canary,
            self.claims + other.claims,
        )

    @property
    def pod_seconds(self) -> float:
        """Sum of all purposes."""
        return self.serving + self.idle + self.starting + self.canary

    @property
    def is_nothing(self) -> bool:
        """Whether all values are written as zero."""
        return not any(round(value, DIGITS) for value in astuple(self))

    def to_json(self) -> list[float]:
        """Return the annotation's representation."""
        return [round(value, DIGITS) for value in astuple(self)]

    @classmethod
    def from_json(cls, values: Any) -> Spent:
        """Return the inverse of `to_json`; zero for an invalid row."""
        wanted = len(fields(cls))
        if not isinstance(values, list) or len(values) != wanted or not all(map(_is_amount, values)):
            return cls()
        return cls(*map(float, values))


NOTHING: Final = Spent()
Replica = Mapping[str, float]
"""Resource requests of one Pod: `cpu` in cores, `memory` in bytes, extended resources by their names."""


@dataclass(slots=True)
class Meter:
    """The sums of one size of replicas, by `2026-01-01T14` and by `2026-01-01`."""

    replica: Replica
    hours: dict[str, Spent] = field(default_factory=dict)
    days: dict[str, Spent] = field(default_factory=dict)

    def add(self, spent: Spent, at: datetime) -> None:
        """Add the usage just before `at`."""
        _put(self.hours, hour_of(at), spent, KEPT_HOURS)
        _put(self.days, day_of(at), spent, KEPT_DAYS)

    def merge(self, other: Meter) -> None:
        """Add all sums of another meter."""
        for mine, theirs, kept in ((self.hours, other.hours, KEPT_HOURS), (self.days, other.days, KEPT_DAYS)):
            for name, spent in theirs.items():
                _put(mine, name, spent, kept)

    def to_json(self) -> dict[str, Any]:
        """Return the annotation's representation."""
        hours = {name: spent.to_json() for name, spent in self.hours.items() if not spent.is_nothing}
        days = {name: spent.to_json() for name, spent in self.days.items() if not spent.is_nothing}
        return {"replica": dict(self.replica), "hours": hours, "days": days}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Return the inverse of `to_json`, without invalid values."""
        parts = value if isinstance(value, dict) else {}
        replica = {name: float(amount) for name, amount in _mapping(parts.get("replica")) if _is_amount(amount)}
        hours = {name: Spent.from_json(row) for name, row in _mapping(parts.get("hours"))}
        days = {name: Spent.from_json(row) for name, row in _mapping(parts.get("days"))}
        return cls(replica, _newest(hours, KEPT_HOURS), _newest(days, KEPT_DAYS))


@dataclass(slots=True)
class Usage:
    """The usage of one revision or warm pool up to `at` (None: nothing yet)."""

    at: datetime | None = None
    meters: list[Meter] = field(default_factory=list)

    def meter(self, replica: Replica) -> Meter:
        """Return the meter of this size of replicas; create it if necessary."""
        found = next((one for one in self.meters if one.replica == replica), None)
        if found is None:
            found = Meter(dict(replica))
            self.meters = [*self.meters, found][-KEPT_METERS:]
        return found

    def merge(self, other: Usage) -> None:
        """Add the usage of a deleted revision."""
        for meter in other.meters:
            self.meter(meter.replica).merge(meter)

    def to_json(self) -> str:
        """Return the annotation's text."""
        document = {"at": timestamp(self.at) if self.at else "", "meters": [one.to_json() for one in self.meters]}
        return json.dumps(document, separators=(",", ":"))


def read_usage(obj: Object) -> Usage:
    """Return the `Usage` of a PodAutoscaler or WarmPool; an empty one if it is missing or unreadable."""
    try:
        document = json.loads(annotations_of(obj).get(USAGE_ANNOTATION, "{}"))
        at = parse_timestamp(document["at"]) if document.get("at") else None
        return Usage(at, [Meter.from_json(one) for one in document.get("meters") or ()][-KEPT_METERS:])
    except (ValueError, TypeError, AttributeError, RecursionError):
        return Usage()


def hour_of(at: datetime) -> str:
    """Return the name of an hour: `2026-01-01T14`."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H")


def day_of(at: datetime) -> str:
    """Return the name of a day: `2026-01-01`."""
    return at.astimezone(UTC).strftime("%Y-%m-%d")


def hours_between(start: datetime, end: datetime) -> Iterator[tuple[datetime, float]]:
    """Yield the parts of a time span by hour: (a time in that hour, seconds)."""
    while start < end:
        following = start.replace(minute=0, second=0, microsecond=0) + HOUR
        stop = min(following, end)
        yield start, (stop - start).total_seconds()
        start = stop


def _put(sums: dict[str, Spent], name: str, spent: Spent, kept: int) -> None:
    sums[name] = sums.get(name, NOTHING) + spent
    while len(sums) > kept:
        del sums[min(sums)]


def _newest(sums: Mapping[str, Spent], kept: int) -> dict[str, Spent]:
    return dict(sorted(sums.items())[-kept:])


def _mapping(value: Any) -> list[tuple[str, Any]]:
    return [(str(name), one) for name, one in value.items()] if isinstance(value, dict) else []


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0.0
