"""What replicas held, added up by purpose: the reading of a bill, as it stands in an annotation. Pure.

Unit: pod-seconds, that is seconds times Pods that hold resources of a node, whatever they do. By purpose:

    serving    ready, with at least one request
    idle       ready, without any
    starting   not ready yet, or not any more
    canary     of a version that is on trial beside the one with the traffic, whatever it did

`claims` beside them counts replicas that came out of a warm pool, by which the pool's own bill is divided. Sums are
kept by hour and by day (UTC), for `KEPT_HOURS` and `KEPT_DAYS`, apart for replicas of different resources: a `Meter`
each.

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
"""On PodAutoscalers and WarmPools: their `Usage`, at most one write a minute."""

CANARY_ANNOTATION: Final = "autoscaling.knodel.dev/canary"
"""On the PodAutoscalers of a version that is on trial: `true`, by who decides on the traffic."""

KEPT_HOURS: Final = 25
"""The present one, and a day before it."""
KEPT_DAYS: Final = 32
"""The present one, and a month before it."""
KEPT_METERS: Final = 4
"""Kinds of replicas told apart: sizes change with versions, and rarely."""
DIGITS: Final = 2
"""Of a pod-second that are written."""
HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Spent:
    """Pod-seconds by purpose, and claims; the order is that of the annotation."""

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
        """Of all purposes."""
        return self.serving + self.idle + self.starting + self.canary

    @property
    def is_nothing(self) -> bool:
        """Whether it would be written as nothing."""
        return not any(round(value, DIGITS) for value in astuple(self))

    def to_json(self) -> list[float]:
        """As it stands in the annotation."""
        return [round(value, DIGITS) for value in astuple(self)]

    @classmethod
    def from_json(cls, values: Any) -> Spent:
        """The inverse of `to_json`; what is no row of ours counts as nothing."""
        wanted = len(fields(cls))
        if not isinstance(values, list) or len(values) != wanted or not all(map(_is_amount, values)):
            return cls()
        return cls(*map(float, values))


NOTHING: Final = Spent()
Replica = Mapping[str, float]
"""What one Pod asks for: `cpu` in cores, `memory` in bytes, extended resources by their names."""


@dataclass(slots=True)
class Meter:
    """The sums of one kind of replica, by `2026-01-01T14` and by `2026-01-01`."""

    replica: Replica
    hours: dict[str, Spent] = field(default_factory=dict)
    days: dict[str, Spent] = field(default_factory=dict)

    def add(self, spent: Spent, at: datetime) -> None:
        """Add what was spent just before `at`."""
        _put(self.hours, hour_of(at), spent, KEPT_HOURS)
        _put(self.days, day_of(at), spent, KEPT_DAYS)

    def merge(self, other: Meter) -> None:
        """Add all of another meter."""
        for mine, theirs, kept in ((self.hours, other.hours, KEPT_HOURS), (self.days, other.days, KEPT_DAYS)):
            for name, spent in theirs.items():
                _put(mine, name, spent, kept)

    def to_json(self) -> dict[str, Any]:
        """As it stands in the annotation."""
        said = {name: spent.to_json() for name, spent in self.hours.items() if not spent.is_nothing}
        days = {name: spent.to_json() for name, spent in self.days.items() if not spent.is_nothing}
        return {"replica": dict(self.replica), "hours": said, "days": days}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """The inverse of `to_json`; what makes no sense is left out."""
        parts = value if isinstance(value, dict) else {}
        replica = {name: float(amount) for name, amount in _mapping(parts.get("replica")) if _is_amount(amount)}
        hours = {name: Spent.from_json(row) for name, row in _mapping(parts.get("hours"))}
        days = {name: Spent.from_json(row) for name, row in _mapping(parts.get("days"))}
        return cls(replica, _newest(hours, KEPT_HOURS), _newest(days, KEPT_DAYS))


@dataclass(slots=True)
class Usage:
    """All that was counted for one revision, or one warm pool, up to `at` (None: nothing yet)."""

    at: datetime | None = None
    meters: list[Meter] = field(default_factory=list)

    def meter(self, replica: Replica) -> Meter:
        """The meter of such replicas, made where there is none."""
        found = next((one for one in self.meters if one.replica == replica), None)
        if found is None:
            found = Meter(dict(replica))
            self.meters = [*self.meters, found][-KEPT_METERS:]
        return found

    def merge(self, other: Usage) -> None:
        """Take over what another one counted, that of a revision that is gone."""
        for meter in other.meters:
            self.meter(meter.replica).merge(meter)

    def to_json(self) -> str:
        """The annotation's text."""
        said = {"at": timestamp(self.at) if self.at else "", "meters": [one.to_json() for one in self.meters]}
        return json.dumps(said, separators=(",", ":"))


def read_usage(obj: Object) -> Usage:
    """The `Usage` of a PodAutoscaler or WarmPool; one without anything where there is none that can be read."""
    try:
        said = json.loads(annotations_of(obj).get(USAGE_ANNOTATION, "{}"))
        at = parse_timestamp(said["at"]) if said.get("at") else None
        return Usage(at, [Meter.from_json(one) for one in said.get("meters") or ()][-KEPT_METERS:])
    except (ValueError, TypeError, AttributeError, RecursionError):
        return Usage()


def hour_of(at: datetime) -> str:
    """The name of an hour: `2026-01-01T14`."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H")


def day_of(at: datetime) -> str:
    """The name of a day: `2026-01-01`."""
    return at.astimezone(UTC).strftime("%Y-%m-%d")


def hours_between(start: datetime, end: datetime) -> Iterator[tuple[datetime, float]]:
    """The parts of a time that lie in one hour each: (a moment of that hour, seconds)."""
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
