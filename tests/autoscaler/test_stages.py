"""Each rule of the decision on its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoscaler.config import Scaling
from autoscaler.scaling import stages
from autoscaler.scaling.stages import Outcome, Situation, Stage
from autoscaler.scaling.table import NAN, Observations, Specs, State

SETTLED = {"age": 100.0, "covered": 60.0}


def situation(spec: dict[str, Any] | None = None, state: dict[str, Any] | None = None, **seen: Any) -> Situation:
    wished = {"max": 100, "target": 2.0, "utilization": 1.0, **(spec or {})}
    return Situation(
        Specs.of(**wished), Observations.of(**{**SETTLED, **seen}), State.of(**(state or {})), 1_000.0, Scaling()
    )


def after(stage: Stage, desired: int, at: Situation) -> int:
    return int(outcome(stage, desired, at).desired[0])


def outcome(stage: Stage, desired: int, at: Situation) -> Outcome:
    return stage(at, np.array([desired]))


@pytest.mark.parametrize(
    ("work", "replicas"), [(0.0, 0), (0.05, 0), (2.0, 1), (2.08, 1), (2.2, 2), (7.9, 4), (8.004, 4), (1e308, 10**9)]
)
def test_work_is_divided_by_the_slots_of_a_replica_and_rounded_up(work: float, replicas: int) -> None:
    assert after(stages.stable, 1, situation(stable=work, current=1)) == replicas


def test_utilization_lowers_what_a_replica_is_to_hold() -> None:
    assert after(stages.stable, 1, situation({"target": 10.0, "utilization": 0.7}, stable=14.0)) == 2


def test_without_data_the_count_stays() -> None:
    assert after(stages.stable, 5, situation(stable=NAN, current=5)) == 5


def test_silent_replicas_count_as_full_when_that_would_shrink_and_as_idle_when_it_would_grow() -> None:
    assert after(stages.stable, 4, situation(stable=2.0, unknown=4.0)) == 3
    assert after(stages.stable, 4, situation(stable=2.0, unknown=6.0)) == 4
    assert after(stages.stable, 2, situation(stable=4.0, unknown=40.0)) == 2
    assert after(stages.stable, 2, situation(stable=10.0, unknown=40.0)) == 5


def test_waiting_requests_call_for_replicas_beside_the_work_in_hand() -> None:
    assert after(stages.waiting, 0, situation(queued=1.0)) == 1
    assert after(stages.waiting, 0, situation(queued=8.0)) == 4
    assert after(stages.waiting, 1, situation(queued=8.0, panic=2.0, ready=1)) == 5
    assert after(stages.waiting, 6, situation(queued=8.0)) == 6


def test_ready_replicas_that_are_not_heard_while_requests_wait_are_taken_for_full() -> None:
    assert after(stages.waiting, 2, situation(queued=2.0, panic=NAN, ready=2)) == 3


def test_what_starts_counts_with_what_it_will_drain_before_a_new_one_is_ready() -> None:
    starting: dict[str, Any] = {"current": 4, "starting_seconds": 4 * 3.0, "service_time": 1.0}
    assert after(stages.waiting, 4, situation(queued=20.0, **starting)) == 4
    assert after(stages.waiting, 4, situation(queued=40.0, **starting)) == 8


def test_short_requests_are_worked_off_by_fewer_replicas() -> None:
    assert after(stages.waiting, 0, situation(queued=200.0, service_time=0.01)) == 1
    assert after(stages.waiting, 0, situation(queued=200.0, service_time=30.0)) == 100


def test_requests_that_wait_inside_replicas_call_for_others_and_are_panic_when_they_call_for_twice_as_many() -> None:
    assert after(stages.crowded, 1, situation(crowd=8.0)) == 4
    assert after(stages.crowded, 6, situation(crowd=8.0)) == 6
    assert after(stages.crowded, 2, situation(crowd=0.0)) == 2
    assert after(stages.panic, 1, situation(crowd=8.0, ready=1)) == 4
    assert after(stages.panic, 3, situation(crowd=8.0, ready=3)) == 3


def test_a_need_of_twice_the_ready_replicas_is_panic_and_held_for_a_stable_window() -> None:
    result = outcome(stages.panic, 2, situation(panic=8.0, ready=2))
    assert result.desired[0] == 4
    assert result.state["panic_until"][0] == 1_060.0
    assert result.state["panic_peak"][0] == 4


def test_a_need_of_less_is_left_to_the_stable_window() -> None:
    result = outcome(stages.panic, 2, situation(panic=6.0, ready=2))
    assert result.desired[0] == 2
    assert result.state["panic_peak"][0] == 0


def test_the_peak_of_a_panic_stays_until_its_end() -> None:
    panicking = {"panic_until": 1_010.0, "panic_peak": 9}
    assert after(stages.panic, 2, situation(state=panicking, panic=1.0, ready=9)) == 9
    over = {"panic_until": 1_000.0, "panic_peak": 9}
    assert after(stages.panic, 2, situation(state=over, panic=1.0, ready=9)) == 2


def test_a_process_that_found_replicas_does_not_panic_by_its_first_seconds() -> None:
    young: dict[str, Any] = {"age": 3.0, "covered": 3.0, "adopted": True, "panic": 80.0, "ready": 3}
    assert after(stages.panic, 3, situation(**young)) == 3
    assert after(stages.panic, 3, situation(queued=80.0, **young)) > 3


def test_nothing_goes_while_requests_wait() -> None:
    assert after(stages.keep_while_waiting, 1, situation(queued=1.0, current=4)) == 4
    assert after(stages.keep_while_waiting, 1, situation(queued=0.0, current=4)) == 1


@pytest.mark.parametrize("unproven", [{"age": 59.0}, {"age": NAN}, {"covered": 20.0}])
def test_nothing_is_scaled_down_before_a_stable_window_of_readings(unproven: dict[str, Any]) -> None:
    assert after(stages.hold_without_data, 1, situation(**{"current": 3, **unproven})) == 3
    assert after(stages.hold_without_data, 5, situation(**{"current": 3, **unproven})) == 5
    assert after(stages.hold_without_data, 1, situation(current=3)) == 1


def test_one_step_at_most_halves() -> None:
    assert after(stages.rate_limits, 1, situation(current=9, ready=9)) == 4
    assert after(stages.rate_limits, 0, situation(current=1, ready=1)) == 0


def test_one_step_at_most_multiplies_the_ready_replicas() -> None:
    assert after(stages.rate_limits, 10**9, situation(current=1, ready=2)) == 2_000
    assert after(stages.rate_limits, 7_000, situation(current=7_000, ready=0)) == 7_000


def test_leaving_zero_starts_at_least_the_activation_scale() -> None:
    assert after(stages.activation_scale, 1, situation({"activation": 3}, current=0)) == 3
    assert after(stages.activation_scale, 0, situation({"activation": 3}, current=0)) == 0
    assert after(stages.activation_scale, 1, situation({"activation": 3}, current=1)) == 1


def test_replicas_go_only_after_less_was_enough_for_the_whole_delay() -> None:
    spec = {"scale_down_delay": 30.0}
    first = outcome(stages.scale_down_delay, 2, situation(spec, current=5))
    assert (first.desired[0], first.state["below_since"][0]) == (5, 1_000.0)
    waited = {"below_since": 971.0, "below_peak": 3}
    assert after(stages.scale_down_delay, 2, situation(spec, waited, current=5)) == 5
    passed = {"below_since": 970.0, "below_peak": 3}
    assert after(stages.scale_down_delay, 2, situation(spec, passed, current=5)) == 3


def test_the_delay_starts_anew_when_the_replicas_were_needed() -> None:
    waited = {"below_since": 980.0, "below_peak": 3}
    result = outcome(stages.scale_down_delay, 5, situation({"scale_down_delay": 30.0}, waited, current=5))
    assert np.isnan(result.state["below_since"][0])


def test_averages_below_one_replica_leave_one() -> None:
    assert after(stages.keep_one, 0, situation(current=1)) == 1
    assert after(stages.keep_one, 0, situation(current=0)) == 0


@pytest.mark.parametrize(
    ("seen", "replicas"),
    [
        ({"idle": 60.0}, 0),
        ({"idle": 59.0}, 3),
        ({"idle": NAN}, 3),
        ({"idle": 60.0, "queued": 1.0}, 3),
        ({"idle": 60.0, "active": 1.0}, 3),
    ],
)
def test_all_replicas_go_after_long_enough_without_any_work(seen: dict[str, Any], replicas: int) -> None:
    assert after(stages.idle, 3, situation(current=3, **seen)) == replicas


@pytest.mark.parametrize(
    ("spec", "replicas"),
    [
        ({"min": 2}, 2),
        ({"min": 2, "reachable": False}, 0),
        ({"min": 2, "initialized": False, "initial": 4}, 4),
        ({"min": 2, "initialized": False, "initial": 4, "reachable": False}, 4),
        ({"min": 0, "initialized": False, "initial": 0}, 0),
        ({"max": 3, "initialized": False, "initial": 5}, 3),
    ],
)
def test_the_lower_bound(spec: dict[str, Any], replicas: int) -> None:
    assert after(stages.bounds, 0, situation(spec)) == replicas


def test_the_upper_bound() -> None:
    assert after(stages.bounds, 50, situation({"max": 4})) == 4


def test_what_could_not_start_is_given_up_unless_it_is_waited_for() -> None:
    assert after(stages.give_up, 1, situation({"expired": True, "initialized": False})) == 0
    assert after(stages.give_up, 1, situation({"expired": True, "initialized": False}, queued=1.0)) == 1
    assert after(stages.give_up, 2, situation({"expired": True, "min": 2})) == 2
    assert after(stages.give_up, 1, situation({"expired": True, "min": 0})) == 0
