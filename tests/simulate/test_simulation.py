"""Test that the simulation counts every request and every replica-second."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.simulate import oracle
from loadtests.simulate.knative import Knative
from loadtests.simulate.knodel import Knodel
from loadtests.simulate.outcome import Outcome
from loadtests.simulate.replicas import Starts
from loadtests.simulate.scaler import Scaler
from loadtests.simulate.simulation import Simulation, UnansweredRequests
from loadtests.simulate.trace import Trace, open_trace
from loadtests.simulate.workload import Workload, workload_of
from tests.simulate.workloads import Steps, workload


def run(work: Workload, scaler: Scaler, starts: Starts | None = None) -> Outcome:
    return Simulation(work, scaler, starts).run("tested")


def test_a_request_at_zero_waits_for_the_whole_start() -> None:
    outcome = run(workload([0.0], 2.0, start=10.0), Steps((0.0, 1)))
    assert outcome.waits.tolist() == [10.0]
    assert outcome.replica_seconds == 12.0


def test_requests_are_served_in_the_order_of_their_arrival() -> None:
    outcome = run(workload([0.0, 0.1, 0.2], 1.0, start=1.0), Steps((0.0, 1)))
    assert outcome.waits.tolist() == pytest.approx([1.0, 1.9, 2.8])


def test_a_replica_processes_as_many_requests_as_it_has_slots() -> None:
    outcome = run(workload([0.0, 0.0, 0.0], 5.0, slots=2, start=1.0), Steps((0.0, 1)))
    assert outcome.waits.tolist() == [1.0, 1.0, 6.0]


def test_starting_replicas_are_billed() -> None:
    outcome = run(workload([0.0], 1.0, start=10.0), Steps((0.0, 3)))
    assert outcome.replica_seconds == 3 * 11.0
    assert outcome.peak == 3


def test_a_busy_replica_is_never_stopped_and_accepts_no_new_requests() -> None:
    scaler = Steps((0.0, 1), (3.0, 0), (5.0, 1))
    outcome = run(workload([0.0, 4.5], 9.0, start=1.0), scaler)
    assert outcome.waits.tolist() == [1.0, 1.5]  # the second one by a replica that was asked for at 5 s
    assert outcome.replica_seconds == (10.0 - 0.0) + (15.0 - 5.0)


def test_the_replica_with_the_fewest_requests_is_removed_first() -> None:
    outcome = run(workload([0.0, 4.0], [20.0, 1.0], slots=4, start=1.0), Steps((0.0, 2), (6.0, 1)))
    assert outcome.replica_seconds == 2 * 6.0 + (21.0 - 6.0)


def test_a_cancelled_start_is_billed_until_then() -> None:
    outcome = run(workload([0.0, 8.0], 1.0, slots=1, start=10.0), Steps((0.0, 3), (4.0, 1)))
    assert outcome.replica_seconds == 3 * 4.0 + 1 * (12.0 - 4.0)
    assert outcome.starts == 3


def test_replicas_after_the_last_response_are_counted_separately() -> None:
    outcome = run(workload([0.0], 1.0, start=1.0), Steps((0.0, 2), (30.0, 0)))
    assert (outcome.replica_seconds, outcome.after) == (4.0, 56.0)


def test_a_policy_that_serves_no_requests_is_an_error() -> None:
    with pytest.raises(UnansweredRequests, match="tested: 1 requests of a few are not answered after"):
        run(workload([0.0]), Steps((0.0, 0)))


def test_ticks_pause_without_replicas_and_requests() -> None:
    scaler = Steps((0.0, 0), (100.0, 1), (103.0, 0), (5_000.0, 1))
    run(workload([100.0, 5_000.0], 1.0, start=1.0), scaler)
    assert [state.now for state in scaler.states if 104.0 < state.now < 5_000.0] == []


def test_a_scaler_records_the_durations_of_cold_starts() -> None:
    scaler = Steps((0.0, 2))
    run(workload([0.0], start=7.5), scaler)
    assert scaler.starts == [7.5, 7.5, 7.5]  # the first one when it was deployed


def test_a_pool_member_is_claimed_and_its_replacement_takes_a_cold_start() -> None:
    work = workload([0.0, 20.0], 100.0, start=10.0)
    scaler = Steps((0.0, 0), (15.0, 1), (20.0, 2))
    outcome = run(work, scaler, Starts(work, pool=1, claim=3.0))
    assert outcome.waits.tolist() == [18.0, 10.0]
    assert scaler.starts == [10.0, 10.0]  # when it was deployed, and the second replica
    assert outcome.pool == 130.0


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    gaps = draw(st.lists(st.sampled_from([0.0, 0.01, 0.3, 2.0, 30.0, 400.0]), min_size=1, max_size=60))
    service = draw(st.lists(st.sampled_from([0.001, 0.2, 1.0, 7.5]), min_size=len(gaps), max_size=len(gaps)))
    arrivals = np.cumsum(gaps) - gaps[0]
    return workload(
        arrivals.tolist(), service, slots=draw(st.integers(1, 8)), start=draw(st.sampled_from([0.5, 2.5, 30.0, 120.0]))
    )


@settings(max_examples=30, deadline=None)
@given(workloads(), st.sampled_from(["knodel", "knative"]))
def test_every_request_is_served_once_and_all_replicas_are_billed(work: Workload, policy: str) -> None:
    scaler: Scaler = Knodel(work.slots) if policy == "knodel" else Knative(work.slots)
    simulation = Simulation(work, scaler)
    outcome = simulation.run(policy)
    end = float((work.arrivals + outcome.waits + work.service).max())
    assert np.isfinite(outcome.waits).all() and (outcome.waits >= 0.0).all()
    assert outcome.replica_seconds * work.slots >= work.work - 1e-6
    assert outcome.replica_seconds <= outcome.peak * end + 1e-6
    assert outcome.immediate <= oracle.best(work).immediate
    seconds = outcome.timeline.replicas[: int(end) + 1]
    assert outcome.replica_seconds <= sum(seconds) + 1e-6  # the most of each second


@pytest.mark.parametrize("policy", [Knodel, Knative])
def test_the_same_seed_repeats_a_run(policy: type[Knodel] | type[Knative]) -> None:
    trace = beginning(open_trace("code"), 500)

    def outcome(seed: int) -> Outcome:
        work = workload_of(trace, 30.0, spread=0.5, seed=seed)
        return run(work, policy(work.slots))

    first, second, other = outcome(1), outcome(1), outcome(2)
    assert first.waits.tolist() == second.waits.tolist()
    assert first.replica_seconds == second.replica_seconds
    assert first.waits.tolist() != other.waits.tolist()


def test_spread_changes_no_mean() -> None:
    trace = open_trace("conv")
    exact, spread = workload_of(trace, 30.0), workload_of(trace, 30.0, spread=0.5)
    assert spread.service.mean() == pytest.approx(exact.service.mean(), rel=0.02)
    assert spread.service.std() > exact.service.std()


def beginning(trace: Trace, requests: int) -> Trace:
    return Trace(trace.name, trace.arrivals[:requests], trace.context[:requests], trace.generated[:requests])
