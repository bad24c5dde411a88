"""The policies that can be compared, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtests.simulate import oracle
from loadtests.simulate.knative import Knative
from loadtests.simulate.knodel import Knodel
from loadtests.simulate.outcome import Outcome
from loadtests.simulate.simulation import Simulation
from loadtests.simulate.starts import Starts
from loadtests.simulate.workload import Workload


@dataclass(frozen=True, slots=True)
class Terms:
    """Parameters besides the workload: `wishes` are fields of Knodel's scaling policy; Knodel's pool, and the seconds
    of one claim.
    """

    wishes: Mapping[str, Any] = field(default_factory=dict)
    pool: int = 0
    claim: float = 3.0


Policy = Callable[[Workload, Terms], Outcome]


def knodel(workload: Workload, terms: Terms) -> Outcome:
    """Run our decider, with its defaults except for `terms.wishes`. Raises InvalidPolicy."""
    scaler = Knodel(workload.slots, terms.wishes)
    return Simulation(workload, scaler, Starts(workload, terms.pool, terms.claim)).run("Knodel")


def knative(workload: Workload, terms: Terms) -> Outcome:
    """Run Knative's rule, with its defaults; it has no pool."""
    return Simulation(workload, Knative(workload.slots)).run("Knative")


POLICIES: Mapping[str, Policy] = {
    "knodel": knodel,
    "knative": knative,
    "best": lambda workload, terms: oracle.best(workload),
    "oracle": lambda workload, terms: oracle.free(workload),
}
"""Those that know the future come last."""
