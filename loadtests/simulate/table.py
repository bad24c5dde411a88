"""The results as lines of text."""

from __future__ import annotations

from loadtests.simulate.outcome import HOUR, Outcome
from loadtests.simulate.workload import Workload

HEAD = (
    f"{'':<26}{'≤ 1 s':>9}{'p50 s':>8}{'p99 s':>8}{'max s':>8}{'replica-h':>11}{'after':>7}"
    f"{'pool-h':>8}{'peak':>6}{'starts':>8}{'cost':>9}"
)
LEGEND = (
    "≤ 1 s: share of the requests that wait at most a second for a slot. replica-h: paid until the last answer, with "
    "replicas that start\nor drain; after: from then until the last one is gone. best possible from zero: knows all "
    "arrivals, but nothing is there at the\ntrace's begin; oracle: besides, starts take no time."
)


def title(workload: Workload, notes: str) -> str:
    """What was run."""
    requests, hours = len(workload.arrivals), float(workload.arrivals[-1]) / HOUR
    text = f"{workload.name}: {requests} requests in {hours:.2f} h, {workload.slots} slots a replica, "
    return text + f"ready after {workload.start:g} s{notes}"


def row(outcome: Outcome, price: float) -> str:
    """One policy's line."""
    waits = "".join(f"{outcome.quantile(share):>8.2f}" for share in (0.5, 0.99, 1.0))
    return (
        f"{outcome.policy:<26}{outcome.soon:>9.2%}{waits}{outcome.hours:>11.2f}{outcome.after / HOUR:>7.2f}"
        f"{outcome.pool / HOUR:>8.2f}{outcome.peak:>6d}{outcome.starts:>8d}{outcome.cost(price):>9.2f}"
    )
