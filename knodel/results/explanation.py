"""Why a model has its traffic and its number of replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from knodel.results.displayed import Displayed
from knodel.results.model import Model


@dataclass(frozen=True)
class ScalingDecision:
    """A change of a version's desired replicas from `before` to `after`, with its reasons. `at` is RFC 3339."""

    at: str
    revision: str
    before: int
    after: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class StartStep:
    """A step of a replica's start, such as `load`, and its duration in milliseconds."""

    name: str
    milliseconds: float


@dataclass(frozen=True)
class ReplicaStart:
    """A start of a replica: `kind` is cold, or warm for a member of a pool. Durations are in milliseconds.

    `at` is RFC 3339. `milliseconds` is None while the duration is unknown. `server` has durations inside the server.
    """

    at: str
    revision: str
    replica: str
    kind: str
    milliseconds: float | None
    format: str
    steps: tuple[StartStep, ...]
    server: Mapping[str, float] = field(hash=False)


@dataclass(frozen=True, repr=False)
class Explanation(Displayed):
    """Why a model has its traffic and replicas.

    `rule` is the rule of the traffic split. `decisions` and `starts` are the newest ones, oldest first. `problems` has
    a sentence for each replica that fails to run, and `notes` hints such as a warm pool of another format.
    """

    model: Model
    rule: str
    decisions: tuple[ScalingDecision, ...]
    starts: tuple[ReplicaStart, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
