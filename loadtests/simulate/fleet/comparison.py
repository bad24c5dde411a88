"""Comparison of the pool policy with fixed keep-alives of the same cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from loadtests.simulate.fleet.arrivals import Arrivals
from loadtests.simulate.fleet.policies import FixedKeepAlive, PlannedKeepAlive
from loadtests.simulate.fleet.simulation import FleetOutcome, FleetSimulation, FleetTimes

MOST_RATIO: Final = 0.5
"""Maximum mean added wait of the policy, as a multiple of that of a fixed keep-alive of the same cost."""
STREAMS: Final = {"Poisson": 1.0, "bursty": 4.0}
"""Coefficients of variation of the gaps between the requests of a model."""
HOUR: Final = 3_600.0
NEAR: Final = 0.1
"""Precision of a keep-alive in seconds: it changes the cost by some Pod-minutes of hundreds of Pod-hours."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of the policy, and of fixed keep-alives of the same cost.

    `members` is the average size of the policy's pool. `alone` and `with_pool` are the keep-alive in seconds and its
    outcome, without a pool and with a constant pool of that size; None if no keep-alive has the same cost.
    """

    ours: FleetOutcome
    members: float
    alone: tuple[float, FleetOutcome] | None
    with_pool: tuple[float, FleetOutcome] | None

    @property
    def ratio(self) -> float:
        """Mean added wait, divided by that of the keep-alive without a pool; NaN if there is none."""
        return self.ours.mean_wait / self.alone[1].mean_wait if self.alone else float("nan")


def compare(arrivals: Arrivals, times: FleetTimes, policy: PlannedKeepAlive) -> Comparison:
    """Run the policy, then find the fixed keep-alives of the same cost."""
    ours = FleetSimulation(arrivals, times, policy).run()
    members = ours.members / arrivals.horizon

    def fixed(pool: int) -> Callable[[float], FleetOutcome]:
        return lambda keep: FleetSimulation(arrivals, times, FixedKeepAlive(keep, pool)).run()

    alone = equal_bill(fixed(0), ours.bill, arrivals.horizon)
    return Comparison(ours, members, alone, equal_bill(fixed(round(members)), ours.bill, arrivals.horizon))


def equal_bill(run: Callable[[float], FleetOutcome], bill: float, longest: float) -> tuple[float, FleetOutcome] | None:
    """Return the shortest keep-alive that costs at least `bill`, and its outcome; None if `longest` costs less.

    A longer keep-alive saves starts, so the cost may fall before it rises. Of two keep-alives of the same cost, the
    search finds the longer one, which causes less waiting.
    """
    low, high, found = 0.0, longest, run(longest)
    if found.bill < bill:
        return None
    while high - low > NEAR:
        middle = 0.5 * (low + high)
        outcome = run(middle)
        if outcome.bill >= bill:
            high, found = middle, outcome
        else:
            low = middle
    return high, found
