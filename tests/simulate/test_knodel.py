"""Test that the simulation uses the real autoscaler, with the same defaults and overrides."""

from __future__ import annotations

import pytest

from autoscaler.types import InvalidPolicy
from loadtests.simulate.knodel import Knodel
from loadtests.simulate.simulation import Simulation
from tests.simulate.workloads import workload


def test_a_request_at_zero_starts_a_replica_and_an_idle_one_is_removed() -> None:
    outcome = Simulation(workload([0.0], 1.0, slots=4, start=2.0), Knodel(4, {"scaleToZeroAfter": 20.0})).run("tested")
    assert outcome.waits.tolist() == [2.0]
    assert 19.0 <= outcome.after <= 22.0


def test_min_replicas_are_ready_before_the_first_request() -> None:
    work = workload([10.0, 11.0], 1.0, slots=4, start=2.0)
    assert Simulation(work, Knodel(4, {"minReplicas": 1})).run("tested").waits.max() == 0.0


def test_max_replicas_is_a_limit() -> None:
    work = workload([0.1 * number for number in range(50)], 5.0, slots=1, start=2.0)
    assert Simulation(work, Knodel(1, {"maxReplicas": 3})).run("tested").peak == 3


def test_an_invalid_override_is_rejected_with_its_name() -> None:
    with pytest.raises(InvalidPolicy, match="scaleTarget"):
        Knodel(4, {"scaleTarget": -1})


def test_replicas_are_kept_longer_if_starts_are_slow() -> None:
    """A burst is held longer where starts are slow: replicas that go too early cost the next burst a whole start."""
    burst = [0.01 * number for number in range(40)]
    arrivals = [*burst, *(120.0 + at for at in burst)]
    fast, slow = (
        Simulation(workload(arrivals, 2.0, slots=1, start=start), Knodel(1)).run("tested") for start in (0.1, 20.0)
    )
    assert slow.waits[40:].max() < 20.0
    assert fast.replica_seconds < slow.replica_seconds
