"""The report of a comparison: a table with one row for each policy, and the required results of Knodel's policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from loadtests.bench.figure import Figure
from loadtests.simulate.outcome import HOUR, Outcome
from loadtests.simulate.workload import Workload

HEAD = (
    f"{'':<26}{'≤ 1 s':>9}{'p50 s':>8}{'p99 s':>8}{'max s':>8}{'replica-h':>11}{'after':>7}"
    f"{'pool-h':>8}{'peak':>6}{'starts':>8}{'cost':>9}"
)
LEGEND = (
    "≤ 1 s: share of the requests that wait at most one second for a slot. replica-h: replica-hours until the last "
    "response, including\nstarting and draining replicas; after: from then until the last replica is removed. best "
    "possible from zero: knows all arrivals, but\nhas no replicas at first; oracle: also knows all arrivals, and its "
    "replicas start in no time."
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """Required results of Knodel's policy for one workload; None if there is no requirement.

    `immediate`: minimum share of requests that wait at most 1 s. `below_best`: maximum difference between this share
    and the best possible one. `hours`: maximum replica-hours, as a multiple of those of Knative's rule.
    """

    immediate: float | None = None
    below_best: float | None = None
    hours: float | None = None


REQUIREMENTS: Mapping[tuple[str, float], Requirement] = {
    ("code", 30.0): Requirement(immediate=0.95, hours=1.0),
    ("conv", 2.5): Requirement(immediate=0.996, hours=1.0),
    ("conv", 30.0): Requirement(immediate=0.988, hours=1.1),
    ("conv", 120.0): Requirement(below_best=0.01),
}
"""By trace and start time in seconds."""


def figures(required: Requirement, outcomes: Mapping[str, Outcome]) -> Iterator[Figure]:
    """Yield each requirement with the result of `knodel`. Omit those relative to a policy that was not run."""
    ours = outcomes.get("knodel")
    if ours is None:
        return
    if required.immediate is not None:
        yield Figure("wait at most 1 s", 100 * ours.immediate, "%", 100 * required.immediate, least=True)
    if required.below_best is not None and "best" in outcomes:
        aim = outcomes["best"].immediate - required.below_best
        yield Figure(
            f"wait at most 1 s (best possible from zero: {outcomes['best'].immediate:.2%})",
            100 * ours.immediate, "%", round(100 * aim, 3), least=True,
        )  # fmt: skip
    if required.hours is not None and "knative" in outcomes:
        aim = required.hours * outcomes["knative"].hours
        yield Figure(f"replica-hours, aim {required.hours:g} times Knative's", ours.hours, "h", round(aim, 3))


def title(workload: Workload, notes: str) -> str:
    """Return the title line of a workload."""
    requests, hours = len(workload.arrivals), float(workload.arrivals[-1]) / HOUR
    text = f"{workload.name}: {requests} requests in {hours:.2f} h, {workload.slots} slots per replica, "
    return text + f"ready after {workload.start:g} s{notes}"


def row(outcome: Outcome, price: float) -> str:
    """Return the table row of one policy; `price` is per replica-hour."""
    waits = "".join(f"{outcome.quantile(share):>8.2f}" for share in (0.5, 0.99, 1.0))
    return (
        f"{outcome.policy:<26}{outcome.immediate:>9.2%}{waits}{outcome.hours:>11.2f}{outcome.after / HOUR:>7.2f}"
        f"{outcome.pool / HOUR:>8.2f}{outcome.peak:>6d}{outcome.starts:>8d}{outcome.cost(price):>9.2f}"
    )
