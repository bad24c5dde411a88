"""The usage of replicas by purpose, as stored in an annotation and read by bills. Pure.

The unit is pod-seconds: seconds times Pods that occupy resources of a node. By purpose:

    serving    ready, with at least one request
    idle       ready, without requests
    starting   not ready yet, or no longer ready
    canary     of a version under trial beside the stable one, regardless of its work

In addition, `claims` counts replicas from a warm pool; the pool's own bill is divided by them. Language models also
have `tokens`, of prompts and of completions. Sums are kept by hour and by day (UTC), for `KEPT_HOURS` and `KEPT_DAYS`,
in a separate `Meter` for each size of replicas.

    {"at":"2026-01-01T14:30:00Z","meters":[{"replica":{"cpu":1.0,"memory":1073741824.0},
     "hours":{"2026-01-01T14":[12.5,40.0,3.1,0.0,1.0]},"days":{"2026-01-01":[12.5,40.0,3.1,0.0,1.0]},
     "tokens":{"hours":{"2026-01-01T14":[700,300]},"days":{"2026-01-01":[700,300]}}}]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from clusters.base.objects import Object, annotations_of, parse_timestamp, timestamp

USAGE_ANNOTATION: Final = "autoscaling.knodel.dev/usage"
"""On PodAutoscalers and WarmPools: their `Usage`, written at most once a minute."""

CANARY_ANNOTATION: Final = "autoscaling.knodel.dev/canary"
"""On the PodAutoscalers of a version under trial: `true`, written by the controller of rollouts."""

BESIDE_ANNOTATION: Final = "autoscaling.knodel.dev/beside"
"""On a Pod template: resources of the Pods that belong to each of its Pods (`{"cpu":16.0,"nvidia.com/gpu":2.0}`). They
are billed for as long as the Pod itself."""

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
    """Pod-seconds by purpose, and claims, in the order of the annotation; then tokens."""

    serving: float = 0.0
    idle: float = 0.0
    starting: float = 0.0
    canary: float = 0.0
    claims: float = 0.0
    prompt_tokens: float = 0.0
    completion_tokens: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.serving + other.serving,
            self.idle + other.idle,
            self.starting + other.starting,
            self.canary + other.canary,
            self.claims + other.claims,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )

    @property
    def pod_seconds(self) -> float:
        """Sum of all purposes."""
        return self.serving + self.idle + self.starting + self.canary

    def to_json(self) -> list[float]:
        """Return the annotation's representation, without the tokens."""
        return [round(value, DIGITS) for value in (self.serving, self.idle, self.starting, self.canary, self.claims)]

    def tokens_to_json(self) -> list[int]:
        """Return the annotation's representation of the tokens."""
        return [round(self.prompt_tokens), round(self.completion_tokens)]

    @classmethod
    def from_json(cls, values: Any) -> Spent:
        """Return the inverse of `to_json`; zero for an invalid row."""
        return cls(*_amounts(values, 5))

    @classmethod
    def tokens_from_json(cls, values: Any) -> Spent:
        """Return the inverse of `tokens_to_json`; zero for an invalid row."""
        prompt, completion = _amounts(values, 2)
        return cls(prompt_tokens=prompt, completion_tokens=completion)


NOTHING: Final = Spent()
Replica = Mapping[str, float]
"""Resource requests of one Pod: `cpu` in cores, `memory` in bytes, extended resources by their names. The name of a GPU
has its type, if it is known: `nvidia.com/gpu:NVIDIA-H100-80GB-HBM3`."""
TYPE_SEPARATOR: Final = ":"
"""Between the name of a resource and a type of GPU; neither contains it."""


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
        hours, days = _rows(self.hours, Spent.to_json), _rows(self.days, Spent.to_json)
        tokens = {"hours": _rows(self.hours, Spent.tokens_to_json), "days": _rows(self.days, Spent.tokens_to_json)}
        more = {"tokens": tokens} if any(tokens.values()) else {}
        return {"replica": dict(self.replica), "hours": hours, "days": days, **more}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Return the inverse of `to_json`, without invalid values."""
        parts = value if isinstance(value, dict) else {}
        replica = {name: float(amount) for name, amount in _mapping(parts.get("replica")) if _is_amount(amount)}
        tokens = dict(_mapping(parts.get("tokens")))
        hours, days = _sums(parts.get("hours"), tokens.get("hours")), _sums(parts.get("days"), tokens.get("days"))
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


def _rows(sums: Mapping[str, Spent], row_of: Callable[[Spent], list[Any]]) -> dict[str, list[Any]]:
    """Return the rows to write, without those of zeros."""
    rows = {name: row_of(spent) for name, spent in sums.items()}
    return {name: row for name, row in rows.items() if any(row)}


def _sums(rows: Any, tokens: Any) -> dict[str, Spent]:
    """Return the sums of written rows."""
    found = {name: Spent.from_json(row) for name, row in _mapping(rows)}
    for name, row in _mapping(tokens):
        found[name] = found.get(name, NOTHING) + Spent.tokens_from_json(row)
    return found


def _newest(sums: Mapping[str, Spent], kept: int) -> dict[str, Spent]:
    return dict(sorted(sums.items())[-kept:])


def _mapping(value: Any) -> list[tuple[str, Any]]:
    return [(str(name), one) for name, one in value.items()] if isinstance(value, dict) else []


def _amounts(values: Any, wanted: int) -> list[float]:
    """Return the numbers of a row; zeros for an invalid row."""
    if not isinstance(values, list) or len(values) != wanted or not all(map(_is_amount, values)):
        return [0.0] * wanted
    return [float(value) for value in values]


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0.0
