"""Compare policies at the same share of late requests, by the curves that they draw over their targets.

A policy can always trade replicas for late requests by its target, so single runs of two policies say little. Between
two measured points of a curve, the replica-seconds are interpolated linearly.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loadtests.simulate.llm.simulation import LlmOutcome

LEVELS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
"""Shares of late requests at which curves are compared."""
CLEARLY = 0.95
"""Largest ratio of replica-seconds that counts as clearly better: 5 % fewer."""


@dataclass(frozen=True, slots=True)
class Point:
    """The means of several runs with one target; seconds are totals of a run."""

    target: float
    replica_seconds: float
    late: float
    p95: float
    waited: float


def point_of(target: float, outcomes: Sequence[LlmOutcome]) -> Point:
    """Return the mean of runs with different seeds."""
    return Point(
        target,
        statistics.fmean(outcome.replica_seconds for outcome in outcomes),
        statistics.fmean(outcome.late for outcome in outcomes),
        statistics.fmean(outcome.p95 for outcome in outcomes),
        statistics.fmean(float(outcome.waits.sum()) for outcome in outcomes),
    )


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one policy, one for each target: `mean` over all seeds, and those of each seed."""

    mean: Sequence[Point]
    seeds: Sequence[Sequence[Point]]


def curve_of(outcomes: Mapping[float, Sequence[LlmOutcome]]) -> Curve:
    """Return the curve of a policy from its runs by target; the runs of a target are in order of their seeds."""
    by_seed = zip(*outcomes.values(), strict=True)
    seeds = [[point_of(target, [run]) for target, run in zip(outcomes, runs, strict=True)] for runs in by_seed]
    return Curve([point_of(target, runs) for target, runs in outcomes.items()], seeds)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Replica-seconds as a multiple of those of another policy: by share of late requests, and by seed.

    A seed whose curves share no level has no entry.
    """

    levels: Mapping[float, float]
    seeds: Sequence[float]

    @property
    def ratio(self) -> float:
        """The geometric mean over the levels; NaN without any."""
        return _mean(self.levels)

    @property
    def is_clear(self) -> bool:
        """Whether the policy is clearly better: at least 5 % on average, and not worse with any seed."""
        return self.ratio <= CLEARLY and all(ratio <= 1.0 for ratio in self.seeds)


def compare(ours: Curve, other: Curve) -> Comparison:
    """Compare two policies at the same shares of late requests."""
    seeds = [ratios(one, two) for one, two in zip(ours.seeds, other.seeds, strict=True)]
    return Comparison(ratios(ours.mean, other.mean), [_mean(found) for found in seeds if found])


def cost_at(late: float, points: Iterable[Point]) -> float | None:
    """Return the fewest replica-seconds with which at most a share `late` of the requests is late.

    Points that another one beats in both figures do not count. None beyond both ends of the curve.
    """
    frontier: list[Point] = []
    for point in sorted(points, key=lambda point: (point.replica_seconds, point.late)):
        if not frontier or point.late < frontier[-1].late:
            frontier.append(point)
    for worse, better in pairwise(frontier):
        if better.late <= late <= worse.late:
            part = (worse.late - late) / (worse.late - better.late)
            return worse.replica_seconds + part * (better.replica_seconds - worse.replica_seconds)
    return None


def ratios(ours: Sequence[Point], others: Sequence[Point]) -> dict[float, float]:
    """Return replica-seconds as a multiple of those of others, for each of `LEVELS` that both curves contain."""
    found = {}
    for level in LEVELS:
        cost, other = cost_at(level, ours), cost_at(level, others)
        if cost is not None and other is not None:
            found[level] = cost / other
    return found


def _mean(found: Mapping[float, float]) -> float:
    return statistics.geometric_mean(found.values()) if found else math.nan
