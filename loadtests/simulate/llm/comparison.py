"""Compare policies at the same share of late requests, by the curves that they draw over their targets.

A policy can always trade replicas for late requests by its target, so single runs of two policies say little. Between
two measured points of a curve, the replica-seconds are interpolated linearly.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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


def cost_at(late: float, curve: Iterable[Point]) -> float | None:
    """Return the fewest replica-seconds with which at most a share `late` of the requests is late.

    Points that another one beats in both figures do not count. None if no point reaches `late`; if all points do, the
    cheapest one would be beyond the curve, and the result is None as well.
    """
    frontier: list[Point] = []
    for point in sorted(curve, key=lambda point: (point.replica_seconds, point.late)):
        if not frontier or point.late < frontier[-1].late:
            frontier.append(point)
    for worse, better in zip(frontier, frontier[1:], strict=False):
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
