"""Test the bounds against values calculated by hand."""

from __future__ import annotations

import pytest

from loadtests.simulate import oracle
from loadtests.simulate.knative import Knative
from loadtests.simulate.knodel import Knodel
from loadtests.simulate.simulation import Simulation
from loadtests.simulate.trace import open_trace
from loadtests.simulate.workload import workload_of
from tests.simulate.workloads import workload


def test_free_starts_pay_for_slots_in_use_rounded_up_to_replicas() -> None:
    outcome = oracle.free(workload([0.0, 1.0, 10.0], [4.0, 2.0, 1.0], slots=1))
    assert outcome.replica_seconds == 4.0 + 2.0 + 1.0
    assert outcome.waits.max() == 0.0
    assert oracle.free(workload([0.0, 1.0, 10.0], [4.0, 2.0, 1.0], slots=2)).replica_seconds == 4.0 + 1.0


def test_the_best_from_zero_delays_requests_within_the_start_time() -> None:
    outcome = oracle.best(workload([0.0, 4.0, 5.0, 6.0], 1.0, start=5.0))
    assert outcome.waits.tolist() == [5.0, 1.0, 0.0, 0.0]
    assert outcome.immediate == 0.75


def test_the_best_keeps_a_replica_idle_no_longer_than_a_start_takes() -> None:
    near = oracle.best(workload([0.0, 9.0], 1.0, start=5.0))
    assert (near.replica_seconds, near.starts) == (5.0 + 1.0 + 3.0 + 1.0, 1)
    far = oracle.best(workload([0.0, 60.0], 1.0, start=5.0))
    assert (far.replica_seconds, far.starts) == (2 * (5.0 + 1.0), 2)


def test_a_response_and_a_request_at_the_same_time_need_one_slot() -> None:
    assert list(oracle.needed(workload([0.0, 1.0], 1.0).arrivals, workload([0.0, 1.0], 1.0).service, 1)) == [
        (0.0, 1),
        (2.0, 0),
    ]


@pytest.mark.parametrize("start", [2.5, 30.0])
def test_no_policy_is_better_than_the_bounds(start: float) -> None:
    work = workload_of(open_trace("code").shuffled(3).faster(2.0), start)
    best, free = oracle.best(work), oracle.free(work)
    assert free.replica_seconds <= best.replica_seconds
    assert best.immediate < free.immediate == 1.0
    for scaler in (Knative(work.slots), Knodel(work.slots)):
        outcome = Simulation(work, scaler).run("tested")
        assert free.replica_seconds < outcome.replica_seconds
        assert outcome.immediate < best.immediate


def test_the_included_traces_have_the_known_bounds() -> None:
    """Replica-hours of free starts, and the share that a start of two minutes leaves possible."""
    code, conv = open_trace("code"), open_trace("conv")
    assert oracle.free(workload_of(code, 2.5)).hours == pytest.approx(0.90, abs=0.005)
    assert oracle.free(workload_of(conv, 2.5)).hours == pytest.approx(4.17, abs=0.005)
    assert oracle.best(workload_of(code, 30.0)).immediate == pytest.approx(0.999, abs=0.0005)
    assert oracle.best(workload_of(conv, 120.0)).immediate == pytest.approx(0.9768, abs=0.00005)
