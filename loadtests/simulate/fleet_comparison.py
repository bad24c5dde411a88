"""The pool policy compared with fixed keep-alives that have the same bill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from loadtests.simulate.fleet_arrivals import Arrivals
from loadtests.simulate.fleet_policies import Fixed, Planned
from loadtests.simulate.fleet_run import Fleet, Outcome, Times

NEAR: Final = 0.1
"""Precision of a keep-alive in seconds: some pod-minutes of hundreds of pod-hours."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One run of the policy, with `members` in its pool on average, and the keep-alives in seconds with the same bill:
    `alone`, and `with_pool` beside a constant pool of that size; None if none has the same bill.
    """

    ours: Outcome
    members: float
    alone: tuple[float, Outcome] | None
    with_pool: tuple[float, Outcome] | None

    @property
    def ratio(self) -> float:
        """Mean added wait divided by that of the keep-alive alone; NaN without one."""
        return self.ours.mean_wait / self.alone[1].mean_wait if self.alone else float("nan")


def compare(arrivals: Arrivals, times: Times, policy: Planned) -> Comparison:
    """Run the policy, then find the fixed keep-alives with its bill."""
    ours = Fleet(arrivals, times, policy).run()
    members = ours.members / arrivals.horizon

    def fixed(pool: int) -> Callable[[float], Outcome]:
        return lambda keep: Fleet(arrivals, times, Fixed(keep, pool)).run()

    alone = equal_bill(fixed(0), ours.bill, arrivals.horizon)
    return Comparison(ours, members, alone, equal_bill(fixed(round(members)), ours.bill, arrivals.horizon))


def equal_bill(run: Callable[[float], Outcome], bill: float, longest: float) -> tuple[float, Outcome] | None:
    """Return the shortest keep-alive whose bill reaches this one, and its outcome; None when the longest costs less.

    A longer keep-alive saves starts, so bills may fall before they rise. Of two with the same bill, the longer causes
    less waiting and is found.
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
