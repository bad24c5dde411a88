"""Each stage of the decision by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autoscaler.config import DecisionSettings
from autoscaler.scaling.stages import demand, latency, limits, peak_hold, queue, zero
from autoscaler.scaling.stages.stage import Stage, StageInputs, StageResult
from autoscaler.scaling.table import AUTO, NAN, PEAKS, DeciderState, Observations, Specs

SETTLED: dict[str, Any] = {"age": 100.0, "covered": 60.0}


def situation(spec: dict[str, Any] | None = None, state: dict[str, Any] | None = None, **seen: Any) -> StageInputs:
    wished = {"max": 100, "target": 2.0, "utilization": 1.0, **(spec or {})}
    return StageInputs(
        Specs.of(**wished),
        Observations.of(**{**SETTLED, **seen}),
        DeciderState.of(**(state or {})),
        1_000.0,
        DecisionSettings(),
    )


def at_time(now: float, at: StageInputs, kept: StageResult) -> StageInputs:
    """Return the same inputs later, with the state that the decision stored."""
    return replace(at, now=now, state=replace(at.state, **kept.state))


def after(stage: Stage, desired: int, at: StageInputs) -> int:
    return int(outcome(stage, desired, at).desired[0])


def outcome(stage: Stage, desired: int, at: StageInputs) -> StageResult:
    return stage(at, np.array([desired]))


@pytest.mark.parametrize(
    ("work", "replicas"), [(0.0, 0), (0.05, 0), (2.0, 1), (2.08, 1), (2.2, 2), (7.9, 4), (8.004, 4), (1e308, 10**9)]
)
def test_work_is_divided_by_the_slots_of_a_replica_and_rounded_up(work: float, replicas: int) -> None:
    assert after(demand.stable, 1, situation(stable=work, current=1)) == replicas


def test_utilization_lowers_what_a_replica_is_to_hold() -> None:
    assert after(demand.stable, 1, situation({"target": 10.0, "utilization": 0.7}, stable=14.0)) == 2


def test_without_data_the_count_stays() -> None:
    assert after(demand.stable, 5, situation(stable=NAN, current=5)) == 5


def test_silent_replicas_count_as_full_when_that_would_shrink_and_as_idle_when_it_would_grow() -> None:
    assert after(demand.stable, 4, situation(stable=2.0, unknown=4.0)) == 3
    assert after(demand.stable, 4, situation(stable=2.0, unknown=6.0)) == 4
    assert after(demand.stable, 2, situation(stable=4.0, unknown=40.0)) == 2
    assert after(demand.stable, 2, situation(stable=10.0, unknown=40.0)) == 5


def test_waiting_requests_call_for_replicas_beside_the_work_in_hand() -> None:
    assert after(queue.waiting, 0, situation(queued=1.0)) == 1
    assert after(queue.waiting, 0, situation(queued=8.0)) == 4
    assert after(queue.waiting, 1, situation(queued=8.0, panic=2.0, ready=1)) == 5
    assert after(queue.waiting, 6, situation(queued=8.0)) == 6


def test_ready_replicas_that_are_not_heard_while_requests_wait_are_taken_for_full() -> None:
    assert after(queue.waiting, 2, situation(queued=2.0, panic=NAN, ready=2)) == 3


def test_what_starts_counts_with_what_it_will_drain_before_a_new_one_is_ready() -> None:
    starting: dict[str, Any] = {
        "current": 5,
        "ready": 1,
        "panic": 0.0,
        "starting_seconds": 4 * 3.0,
        "service_time": 1.0,
    }
    assert after(queue.waiting, 4, situation(queued=20.0, **starting)) == 4
    assert after(queue.waiting, 4, situation(queued=40.0, **starting)) == 8


def test_short_requests_are_worked_off_by_fewer_replicas() -> None:
    assert after(queue.waiting, 0, situation(queued=200.0, service_time=0.01)) == 1
    assert after(queue.waiting, 0, situation(queued=200.0, service_time=30.0)) == 100


def test_requests_that_wait_inside_replicas_call_for_others_and_are_panic_when_they_call_for_twice_as_many() -> None:
    assert after(queue.crowded, 1, situation(crowd=8.0)) == 4
    assert after(queue.crowded, 6, situation(crowd=8.0)) == 6
    assert after(queue.crowded, 2, situation(crowd=0.0)) == 2
    assert after(demand.panic, 1, situation(crowd=8.0, ready=1)) == 4
    assert after(demand.panic, 3, situation(crowd=8.0, ready=3)) == 3


def test_a_need_of_twice_the_ready_replicas_is_panic_and_held_for_a_stable_window() -> None:
    result = outcome(demand.panic, 2, situation(panic=8.0, ready=2))
    assert result.desired[0] == 4
    assert result.state["panic_until"][0] == 1_060.0
    assert result.state["panic_peak"][0] == 4


def test_a_need_of_less_is_left_to_the_stable_window() -> None:
    result = outcome(demand.panic, 2, situation(panic=6.0, ready=2))
    assert result.desired[0] == 2
    assert result.state["panic_peak"][0] == 0


def test_the_peak_of_a_panic_stays_until_its_end() -> None:
    panicking = {"panic_until": 1_010.0, "panic_peak": 9}
    assert after(demand.panic, 2, situation(state=panicking, panic=1.0, ready=9)) == 9
    over = {"panic_until": 1_000.0, "panic_peak": 9}
    assert after(demand.panic, 2, situation(state=over, panic=1.0, ready=9)) == 2


def test_a_process_that_found_replicas_does_not_panic_by_its_first_seconds() -> None:
    young: dict[str, Any] = {"age": 3.0, "covered": 3.0, "adopted": True, "panic": 80.0, "ready": 3}
    assert after(demand.panic, 3, situation(**young)) == 3
    assert after(demand.panic, 3, situation(queued=80.0, **young)) > 3


def test_requests_of_unknown_length_are_not_counted_on_to_be_drained() -> None:
    starting: dict[str, Any] = {"current": 5, "ready": 1, "panic": 0.0, "starting_seconds": 4 * 3.0, "queued": 40.0}
    assert after(queue.waiting, 5, situation(**starting)) == 20
    assert after(queue.waiting, 5, situation(**starting, service_time=1.0)) == 8


def test_while_none_is_ready_requests_are_expected_to_go_on_coming_until_one_is() -> None:
    first = situation(current=1, queued=14.0, starting_seconds=1.0, start_time=15.0)
    assert after(queue.waiting, 1, first) == 21  # 14 in 1 s and a panic window of 6 s: 2/s for 14 s more
    kept = outcome(queue.waiting, 1, first)
    assert kept.state["starting_since"][0] == 999.0
    more: dict[str, Any] = {"current": 21, "queued": 30.0, "starting_seconds": 190.0, "start_time": 15.0}
    assert after(queue.waiting, 1, at_time(1_008.0, situation(**more), kept)) == 21
    late = at_time(1_030.0, situation(**more), kept)
    assert after(queue.waiting, 1, late) == 15, "what is overdue may come at any moment"
    assert np.isnan(outcome(queue.waiting, 1, situation(current=1, ready=1, queued=2.0)).state["starting_since"][0])


LATE: dict[str, Any] = {"latency": 3.0, "answers": 50.0, "panic": 4.0, "current": 2, "ready": 2, "start_time": 10.0}


@pytest.mark.parametrize(
    ("objective", "seen", "replicas"),
    [
        (2.0, {}, 3),  # in proportion
        (0.5, {}, 4),  # and at most twice as many
        (0.0, {}, 1),
        (2.0, {"latency": NAN}, 1),
        (2.0, {"answers": 19.0}, 1),
        (2.0, {"panic": 1.9}, 1),  # the replicas are not busy: a slow model
        (2.0, {"panic": NAN}, 1),
        (2.0, {"current": 3}, 2),  # what starts has not arrived
        (3.5, {}, 2),  # near the objective nobody goes
        (4.0, {}, 1),
    ],
)
def test_late_answers_of_busy_replicas_call_for_more(objective: float, seen: dict[str, Any], replicas: int) -> None:
    at = situation({"latency_objective": objective}, **{**LATE, **seen})
    assert after(latency.slow_answers, 1, at) == replicas


def test_late_answers_call_for_the_next_step_only_a_start_time_and_a_panic_window_later() -> None:
    at = situation({"latency_objective": 2.0}, **LATE)
    first = outcome(latency.slow_answers, 2, at)
    assert (first.desired[0], first.state["slow_until"][0]) == (3, 1_016.0)
    assert after(latency.slow_answers, 2, at_time(1_015.0, at, first)) == 2
    assert after(latency.slow_answers, 2, at_time(1_016.0, at, first)) == 3


@pytest.mark.parametrize(
    ("start_time", "hold"), [(0.1, 30.0), (2.5, 30.0), (5.0, 60.0), (120.0, 600.0), (NAN, 120.0), (0.0, 120.0)]
)
def test_the_hold_is_twelve_start_times_within_bounds(start_time: float, hold: float) -> None:
    assert peak_hold.hold_of(situation(start_time=start_time))[0] == hold


@pytest.mark.parametrize(
    ("seen", "replicas"),
    [
        ({"panic": 7.2}, 4),  # work that filled four to nine tenths
        ({"panic": 7.2, "stable": 20.0}, 4),  # an average has its own stage
        ({"queued": 6.0, "ready": 1, "panic": 0.0}, 4),  # what waited, with some room
        ({"queued": 6.0}, 0),  # the backlog of a start from zero
        ({"crowd": 5.0}, 5),
        ({"panic": NAN}, 0),
        ({"panic": 1e9}, 100),  # never more than the policy allows
        ({"panic": 8.0, "adopted": True, "age": 2.0}, 0),  # first seconds of a process that found replicas
    ],
)
def test_what_is_needed_at_once(seen: dict[str, Any], replicas: int) -> None:
    assert peak_hold.needed(situation({"utilization": 0.5}, **seen))[0] == replicas


def test_a_peak_is_held_for_the_whole_hold_and_no_longer() -> None:
    kept = outcome(peak_hold.peak_hold, 1, situation(panic=8.0, start_time=5.0))
    assert kept.desired[0] == 4
    at = situation(panic=2.0, start_time=5.0)
    for now in range(1_001, 1_060):
        at = at_time(float(now), at, kept)
        kept = outcome(peak_hold.peak_hold, 1, at)
        assert kept.desired[0] == 4, now
    assert after(peak_hold.peak_hold, 1, at_time(1_060.0, at, kept)) == 1


def test_lower_peaks_are_held_after_higher_ones_by_their_own_time() -> None:
    wanted = {1_000: 8.0, 1_030: 4.0}
    found, at, kept = {}, situation(start_time=5.0), StageResult(np.array([0]))
    for now in range(1_000, 1_120):
        seen = Observations.of(panic=wanted.get(now, 0.0), start_time=5.0, **SETTLED)
        at = replace(at_time(float(now), at, kept), seen=seen)
        kept = outcome(peak_hold.peak_hold, 0, at)
        found[now] = int(kept.desired[0])
    assert [found[now] for now in (1_000, 1_059, 1_061, 1_085, 1_092)] == [4, 4, 2, 2, 0]


def test_after_a_silence_longer_than_the_hold_nothing_is_held() -> None:
    at = situation(panic=8.0, start_time=5.0)
    kept = outcome(peak_hold.peak_hold, 0, at)
    assert after(peak_hold.peak_hold, 0, at_time(1_070.0, situation(start_time=5.0), kept)) == 0


def test_a_first_measured_start_prolongs_the_hold_of_the_peak_at_once() -> None:
    kept = outcome(peak_hold.peak_hold, 0, situation(panic=8.0))
    assert kept.state["hold_width"][0] == pytest.approx(120.0 / (PEAKS + 1))
    later = at_time(1_030.0, situation(start_time=40.0), kept)
    kept = outcome(peak_hold.peak_hold, 0, later)
    assert after(peak_hold.peak_hold, 0, at_time(1_500.0, later, kept)) == 4
    assert after(peak_hold.peak_hold, 0, at_time(1_515.0, later, kept)) == 0


def test_a_process_that_found_replicas_holds_their_number() -> None:
    assert after(peak_hold.peak_hold, 1, situation(current=6, adopted=True)) == 6
    assert after(peak_hold.peak_hold, 1, situation(current=6)) == 1


def test_nothing_goes_while_requests_wait() -> None:
    assert after(queue.keep_while_waiting, 1, situation(queued=1.0, current=4)) == 4
    assert after(queue.keep_while_waiting, 1, situation(queued=0.0, current=4)) == 1


@pytest.mark.parametrize("unproven", [{"age": 59.0}, {"age": NAN}, {"covered": 20.0}])
def test_nothing_is_scaled_down_before_a_stable_window_of_readings(unproven: dict[str, Any]) -> None:
    assert after(limits.hold_without_data, 1, situation(**{"current": 3, **unproven})) == 3
    assert after(limits.hold_without_data, 5, situation(**{"current": 3, **unproven})) == 5
    assert after(limits.hold_without_data, 1, situation(current=3)) == 1


def test_one_step_at_most_halves() -> None:
    assert after(limits.rate_limits, 1, situation(current=9, ready=9)) == 4
    assert after(limits.rate_limits, 0, situation(current=1, ready=1)) == 0


def test_one_step_at_most_multiplies_the_ready_replicas() -> None:
    assert after(limits.rate_limits, 10**9, situation(current=1, ready=2)) == 2_000
    assert after(limits.rate_limits, 7_000, situation(current=7_000, ready=0)) == 7_000


def test_leaving_zero_starts_at_least_the_activation_scale() -> None:
    assert after(limits.activation_scale, 1, situation({"activation": 3}, current=0)) == 3
    assert after(limits.activation_scale, 0, situation({"activation": 3}, current=0)) == 0
    assert after(limits.activation_scale, 1, situation({"activation": 3}, current=1)) == 1


def test_replicas_go_only_after_less_was_enough_for_the_whole_delay() -> None:
    spec = {"scale_down_delay": 30.0}
    first = outcome(limits.scale_down_delay, 2, situation(spec, current=5))
    assert (first.desired[0], first.state["below_since"][0]) == (5, 1_000.0)
    waited = {"below_since": 971.0, "below_peak": 3}
    assert after(limits.scale_down_delay, 2, situation(spec, waited, current=5)) == 5
    passed = {"below_since": 970.0, "below_peak": 3}
    assert after(limits.scale_down_delay, 2, situation(spec, passed, current=5)) == 3


def test_the_delay_starts_anew_when_the_replicas_were_needed() -> None:
    waited = {"below_since": 980.0, "below_peak": 3}
    result = outcome(limits.scale_down_delay, 5, situation({"scale_down_delay": 30.0}, waited, current=5))
    assert np.isnan(result.state["below_since"][0])


def test_averages_below_one_replica_leave_one() -> None:
    assert after(zero.keep_one, 0, situation(current=1)) == 1
    assert after(zero.keep_one, 0, situation(current=0)) == 0


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
    assert after(zero.idle, 3, situation(current=3, **seen)) == replicas


@pytest.mark.parametrize(("start_time", "limit"), [(1.0, 60.0), (20.0, 240.0), (120.0, 600.0), (NAN, 120.0)])
def test_left_to_the_start_time_the_last_replica_goes_after_the_hold_and_a_minute_at_least(
    start_time: float, limit: float
) -> None:
    spec = {"scale_to_zero_after": AUTO}
    seen: dict[str, Any] = {"current": 1, "start_time": start_time}
    assert after(zero.idle, 1, situation(spec, idle=limit - 0.5, **seen)) == 1
    assert after(zero.idle, 1, situation(spec, idle=limit, **seen)) == 0


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
    assert after(limits.bounds, 0, situation(spec)) == replicas


def test_the_upper_bound() -> None:
    assert after(limits.bounds, 50, situation({"max": 4})) == 4


def test_gpus_limit_even_the_minimum() -> None:
    assert after(limits.gpus, 3, situation({"min": 3}, granted=1)) == 1
    assert after(limits.gpus, 3, situation({"min": 3})) == 3


def test_what_could_not_start_is_given_up_unless_it_is_waited_for() -> None:
    assert after(limits.give_up, 1, situation({"expired": True, "initialized": False})) == 0
    assert after(limits.give_up, 1, situation({"expired": True, "initialized": False}, queued=1.0)) == 1
    assert after(limits.give_up, 2, situation({"expired": True, "min": 2})) == 2
    assert after(limits.give_up, 1, situation({"expired": True, "min": 0})) == 0
