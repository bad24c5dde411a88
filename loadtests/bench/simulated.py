"""Figures of the simulations. They are the same on every machine."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from loadtests.bench.figure import Figure
from loadtests.judge.__main__ import cases
from loadtests.judge.simulation import RolloutSimulation
from loadtests.simulate.fleet.arrivals import Traffic, make_arrivals
from loadtests.simulate.fleet.comparison import HOUR, MOST_RATIO, STREAMS, compare
from loadtests.simulate.fleet.policies import PlannedKeepAlive
from loadtests.simulate.fleet.simulation import FleetTimes
from loadtests.simulate.options import STARTS
from loadtests.simulate.policies import POLICIES, PolicyOptions
from loadtests.simulate.report import REQUIREMENTS, figures
from loadtests.simulate.trace import SHIPPED, Trace, open_trace
from loadtests.simulate.workload import workload_of

COMPARED = {"knodel": "Knodel", "knative": "Knative's rule", "best": "best possible from zero"}
"""Policies, and their labels on the page."""
DEFAULTS = PolicyOptions({}, 0, 3.0)
"""The defaults of `loadtests.simulate`: no overrides, no warm pool."""
FLEET, USUAL, MEMBERS, HOURS, SEEDS = 200, 60.0, 50, 6.0, range(1, 6)
"""Number of models, keep-alive of the budget in seconds, maximum pool size, hours and seeds: the fleet's defaults."""
ROLLOUTS, SEED = 10_000, 1
"""Number of rollouts of each case, and their seed."""


def simulate() -> Iterator[Figure]:
    """Yield the figures of both traces, with all start times."""
    for name in SHIPPED:
        trace = open_trace(name)
        for start in STARTS:
            yield from _trace(trace, start)


def _trace(trace: Trace, start: float) -> Iterator[Figure]:
    workload = workload_of(trace, start)
    found = {policy: POLICIES[policy](workload, DEFAULTS) for policy in COMPARED}
    title = f"{trace.name}, ready after {start:g} s"
    for policy, label in COMPARED.items():
        yield Figure(f"{title}: {label}, wait at most 1 s", 100 * found[policy].immediate, "%")
        yield Figure(f"{title}: {label}, replica-hours", found[policy].hours, "h")
    required = REQUIREMENTS.get((trace.name, start))
    for figure in figures(required, found) if required is not None else ():
        yield Figure(f"{title} · {figure.what}", figure.value, figure.unit, figure.aim, figure.least)


def fleet() -> Iterator[Figure]:
    """Yield the added waits of the pool policy, as multiples of those of a fixed keep-alive of the same cost."""
    times = FleetTimes()
    for stream, variation in STREAMS.items():
        ratios, pooled = [], []
        for seed in SEEDS:
            arrivals = make_arrivals(Traffic(models=FLEET, variation=variation), HOURS, seed)
            found = compare(arrivals, times, PlannedKeepAlive(FLEET, times, USUAL, MEMBERS))
            ratios.append(found.ratio)
            if found.with_pool is not None:
                pooled.append(found.ours.mean_wait / found.with_pool[1].mean_wait)
            yield Figure(
                f"{stream}, seed {seed}, added wait relative to a fixed keep-alive", found.ratio, "x", MOST_RATIO
            )
            yield Figure(f"{stream}, seed {seed}, pod-hours", found.ours.bill / HOUR, "h")
        yield Figure(
            f"{stream}, mean of {len(SEEDS)} seeds, added wait relative to a fixed keep-alive",
            statistics.fmean(ratios),
            "x",
        )
        if pooled:
            yield Figure(
                f"{stream}, added wait relative to a keep-alive with a pool of that size", statistics.fmean(pooled), "x"
            )


def judge() -> Iterator[Figure]:
    """Yield the shares of rollouts with a wrong result."""
    for case in cases():
        found = RolloutSimulation(case.world, case.rollout, case.rate, ROLLOUTS, SEED, case.attacks).run(case.longest)
        otherwise = ", insufficient traffic promotes" if case.rollout.on_insufficient_traffic == "promote" else ""
        what = case.what.partition(", insufficient")[0] + f"{otherwise}, {case.rate:g} requests/s"
        yield Figure(f"{what}, rolled back", 100 * found.rolled_back, "%", _percent(case.wrong))
        yield Figure(f"{what}, promoted", 100 * found.promoted, "%", _percent(case.missed))
        if case.within is not None:
            yield Figure(f"{what}, slowest decision", float(found.seconds.max()), "s", case.within)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
