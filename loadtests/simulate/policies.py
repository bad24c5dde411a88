"""The policies of the simulation, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtests.simulate import oracle
from loadtests.simulate.knative import Knative
from loadtests.simulate.knodel import Knodel
from loadtests.simulate.outcome import Outcome
from loadtests.simulate.replicas import Starts
from loadtests.simulate.simulation import Simulation
from loadtests.simulate.workload import Workload


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """Parameters of Knodel's policy: fields of its scaling policy, size of its warm pool, and seconds for one claim."""

    overrides: Mapping[str, Any] = field(default_factory=dict)
    pool: int = 0
    claim: float = 3.0


Policy = Callable[[Workload, PolicyOptions], Outcome]


def knodel(workload: Workload, terms: PolicyOptions) -> Outcome:
    """Run Knodel's decider, with its defaults except for `terms.overrides`. Raises InvalidPolicy."""
    scaler = Knodel(workload.slots, terms.overrides)
    return Simulation(workload, scaler, Starts(workload, terms.pool, terms.claim)).run("Knodel")


def knative(workload: Workload, terms: PolicyOptions) -> Outcome:
    """Run Knative's rule, with its defaults; it has no pool."""
    return Simulation(workload, Knative(workload.slots)).run("Knative")


POLICIES: Mapping[str, Policy] = {
    "knodel": knodel,
    "knative": knative,
    "best": lambda workload, terms: oracle.best(workload),
    "oracle": lambda workload, terms: oracle.free(workload),
}
"""Policies with perfect foresight come last."""
