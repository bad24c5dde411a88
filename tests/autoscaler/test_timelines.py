"""Decisions along written timelines: one revision whose work changes from second to second."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from autoscaler.config import AutoscalerSettings
from autoscaler.metrics.collector import RevisionReading
from autoscaler.scaling.multi_scaler import Change, MultiScaler
from autoscaler.scaling.reasons import Rule
from clusters.base.objects import Key
from tests.autoscaler.world import KEY, Activator
from tests.support.clock import SteppedClock

SPEC: dict[str, Any] = {
    "min": 0,
    "max": 10,
    "initial": 1,
    "activation": 1,
    "target": 2.0,
    "utilization": 1.0,
    "scale_to_zero_after": 30.0,
    "scale_down_delay": 0.0,
    "stable_window": 60.0,
    "reachable": True,
    "initialized": True,
    "expired": False,
}


class Timeline:
    """A revision whose replicas follow each decision at once unless the test sets otherwise."""

    def __init__(self, **spec: Any) -> None:
        self.clock = SteppedClock()
        self.activator = Activator()
        self.fleet = MultiScaler(AutoscalerSettings(), self.activator.load)
        self.current = self.ready = 0
        self.follows = True
        self.changes: list[Change] = []
        self.wish(**spec)
        self.fleet.record_start(KEY, 1.0)

    def wish(self, **spec: Any) -> None:
        self.fleet.set_spec(KEY, {**SPEC, **spec})

    def replicas(self, current: int, ready: int | None = None) -> None:
        self.current, self.ready = current, current if ready is None else ready
        self.fleet.set_replicas(KEY, self.current, self.ready, self.clock.monotonic())

    def seconds(self, count: int, work: float | None = 0.0, **reading: Any) -> int:
        """Advance by `count` seconds with this work (None: no replica answers); return the desired replicas."""
        for _ in range(count):
            self.clock.step(1.0)
            if self.ready and work is not None:
                told = RevisionReading(work, 0.0, work, work, busy=work > 0, complete=True)
                self.observe(RevisionReading(**{**_fields(told), **reading}))
            elif self.ready:
                self.fleet.observe({}, [KEY], self.clock.monotonic())
            self.decide()
        return self.fleet.desired(KEY)

    def observe(self, reading: RevisionReading) -> None:
        self.fleet.observe({KEY: reading}, [KEY], self.clock.monotonic())

    def decide(self) -> int:
        self.changes += self.fleet.decide([KEY], self.clock.monotonic())
        desired = self.fleet.desired(KEY)
        if self.follows and desired != self.current:
            self.replicas(desired)
        return desired

    @property
    def rules(self) -> list[Rule]:
        """Return the rules of the last decision."""
        return [reason.rule for reason in self.changes[-1].reasons]


def _fields(reading: RevisionReading) -> dict[str, Any]:
    return {name: getattr(reading, name) for name in RevisionReading.__slots__}


def warm(replicas: int = 1, **spec: Any) -> Timeline:
    """Return a revision that this process saw start, with a full window without work."""
    line = Timeline(min=replicas, **spec)
    line.replicas(replicas, 0)
    line.decide()
    line.replicas(replicas)
    line.seconds(70)
    line.wish(**spec)
    return line


def test_steady_work_settles_on_what_it_fills() -> None:
    line = warm()
    assert line.seconds(70, work=8.0) == 4
    assert line.seconds(300, work=8.0) == 4


def test_a_burst_is_met_within_seconds_and_given_back_after_a_stable_window() -> None:
    line = warm()
    assert line.seconds(5, work=8.0) == 4
    assert Rule.PANIC in line.rules
    assert line.seconds(55, work=1.0) == 4
    assert line.seconds(70, work=1.0) == 1


def test_a_crowd_inside_a_replica_is_met_at_once_and_not_after_the_panic_window() -> None:
    line = warm()
    assert line.seconds(1, work=8.0) == 1
    assert line.seconds(1, work=8.0, crowd=8.0) == 4
    assert Rule.CROWDED in line.rules
    assert line.seconds(50, work=1.0) == 4
    assert line.seconds(1, work=None) == 4, "a crowd that is not heard of any more is none"


def test_an_idle_revision_goes_to_zero_when_its_time_is_over_and_not_before() -> None:
    line = warm()
    line.seconds(5, work=1.0)
    assert line.seconds(29) == 1
    assert line.seconds(2) == 0
    assert line.rules[-1] is Rule.IDLE


def test_rare_short_requests_keep_the_last_replica() -> None:
    line = warm()
    for _ in range(10):
        line.seconds(1, work=0.001, busy=True)
        assert line.seconds(25) == 1


def test_a_wake_from_zero_is_decided_by_what_waits_and_does_not_overshoot_while_it_starts() -> None:
    line = warm()
    line.seconds(5, work=1.0)  # requests take 1 s
    line.seconds(40)
    assert line.current == 0
    line.follows = False
    line.activator.holds(queued=4)
    assert line.decide() == 2
    line.replicas(2, 0)
    for waiting in range(5, 25):
        line.activator.holds(queued=waiting)
        assert line.seconds(1) <= 3, "one more a second is what two starting replicas drain"
    line.replicas(2, 2)
    line.activator.holds(queued=0, active=4)
    assert line.seconds(20, work=4.0) <= 3


def test_a_flood_at_zero_stops_at_the_limit() -> None:
    line = Timeline(max=3)
    line.replicas(0)
    line.activator.holds(queued=1_000_000)
    assert line.decide() == 3


@pytest.mark.fault("A2")
def test_a_silent_source_holds_the_count_for_minutes_and_what_waits_still_raises_it() -> None:
    line = warm(4)
    line.seconds(70, work=8.0)
    assert line.seconds(300, work=None) == 4
    line.activator.holds(queued=6)
    assert line.decide() > 4


@pytest.mark.fault("A1")
def test_a_new_process_neither_shrinks_nor_panics_by_its_first_seconds() -> None:
    line = Timeline()
    line.replicas(4)
    assert line.decide() == 4
    assert line.seconds(1, work=30.0) <= 15
    line = Timeline()
    line.replicas(4)
    assert line.seconds(29, work=0.5) == 4
    assert line.seconds(25, work=0.5) == 4
    assert line.seconds(40, work=0.5) == 1


def test_a_new_process_may_go_to_zero_once_it_has_itself_seen_no_work_for_long_enough() -> None:
    line = Timeline()
    line.replicas(2)
    assert line.seconds(30) == 2
    assert line.seconds(2) == 0


def test_replicas_that_crash_are_kept_and_do_not_count_as_idle() -> None:
    line = warm(2)
    line.seconds(100, work=4.0)
    line.replicas(2, 0)
    assert line.seconds(200, work=None) == 2


@pytest.mark.fault("A6")
def test_half_of_the_replicas_silent_neither_shrinks_nor_grows_it() -> None:
    line = Timeline()
    line.replicas(4)
    line.decide()
    assert line.seconds(200, work=4.0, missing=4.0, complete=False) == 4
    assert line.seconds(70, work=0.0, missing=4.0, complete=False) == 2


@pytest.mark.fault("A8")
@pytest.mark.parametrize("half", [15, 30], ids=["a period of half a window", "each half as long as half a window"])
def test_a_square_wave_at_half_the_window_does_not_flap(half: int) -> None:
    line = warm(scale_to_zero_after=60.0)  # else half a minute without work is what somebody asked it to go for
    line.changes.clear()
    windows = 6
    for _ in range(windows * 60 // (2 * half)):
        line.seconds(half, work=8.0)
        line.seconds(half, work=0.0)
    directions = [change.desired > change.before for change in line.changes]
    turns = sum(1 for one, other in pairwise(directions) if one != other)
    assert turns <= 2 * windows
    assert line.changes, "the wave is seen"
    assert min(change.desired for change in line.changes) >= 1


@pytest.mark.fault("A7")
def test_a_clock_that_jumps_inside_a_window_changes_nothing() -> None:
    line = warm(4)
    line.seconds(70, work=8.0)
    line.clock.step(45.0)
    line.observe(RevisionReading(8.0, 0.0, 360.0, 10.0, busy=True, complete=True))
    assert line.decide() == 4


def test_after_zero_nothing_of_the_time_before_is_remembered() -> None:
    line = warm()
    line.seconds(5, work=20.0)
    line.seconds(40)
    assert line.current == 0
    line.seconds(5)
    line.activator.holds(queued=1)
    assert line.decide() == 1


def test_a_reading_that_comes_after_the_last_replica_went_does_not_count_as_idle_time_of_the_next_one() -> None:
    line = warm()
    line.seconds(40)
    assert line.current == 0
    nothing = RevisionReading(0.0, 0.0, 0.0, 0.0, busy=False, complete=True)
    line.observe(nothing)  # the tick had asked the replica while it was there
    line.clock.step(60.0)
    line.activator.holds(queued=1)
    assert line.decide() == 1
    line.activator.holds(queued=0)
    line.observe(nothing)
    assert line.decide() == 1


def test_rows_are_reused_and_grow_without_mixing() -> None:
    fleet = MultiScaler(AutoscalerSettings(), Activator().load)
    keys = [Key("default", f"m-{number}") for number in range(200)]
    for number, key in enumerate(keys):
        fleet.set_spec(key, {**SPEC, "min": number % 5, "max": 5})
        fleet.set_replicas(key, 0, 0, 0.0)
    fleet.remove(keys[7])
    fleet.decide(keys, 1.0)
    assert [fleet.desired(key) for key in keys if key in fleet] == [n % 5 for n in range(200) if n != 7]
    fleet.set_spec(keys[7], {**SPEC, "min": 3})
    fleet.set_replicas(keys[7], 0, 0, 2.0)
    assert [change.desired for change in fleet.decide([keys[7]], 2.0)] == [3]


def test_a_scale_down_delay_keeps_replicas_for_its_whole_length() -> None:
    line = warm(scale_down_delay=60.0)
    line.seconds(150, work=8.0)
    prompt = warm()
    prompt.seconds(150, work=8.0)
    assert prompt.seconds(50, work=2.0) < line.seconds(50, work=2.0) == 4
    assert line.seconds(60, work=2.0) < 4


def test_a_burst_is_held_for_twelve_start_times() -> None:
    line = warm()
    for _ in range(8):
        line.fleet.record_start(KEY, 20.0)
    line.seconds(10, work=8.0)
    assert line.seconds(235, work=1.0) == 4
    assert line.seconds(20, work=1.0) == 1


def test_the_start_time_is_the_upper_quartile_of_the_latest_and_survives_zero() -> None:
    fleet = MultiScaler(AutoscalerSettings(), Activator().load)
    fleet.set_spec(KEY, SPEC)
    assert math.isnan(fleet.start_time(KEY))
    for seconds in (100.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, math.nan, -1.0, math.inf):
        fleet.record_start(KEY, seconds)
    assert fleet.start_time(KEY) == pytest.approx(6.25)
    fleet.set_replicas(KEY, 1, 1, 0.0)
    fleet.set_replicas(KEY, 0, 0, 1.0)
    assert fleet.start_time(KEY) == pytest.approx(6.25)
    fleet.remove(KEY)
    fleet.record_start(KEY, 1.0)
    assert math.isnan(fleet.start_time(KEY)), "a namesake begins anew"


@pytest.mark.fault("A1")
def test_a_new_process_holds_what_it_found_for_the_hold() -> None:
    line = Timeline()
    for _ in range(8):
        line.fleet.record_start(KEY, 10.0)
    line.replicas(4)
    assert line.seconds(119, work=0.5) == 4
    assert line.seconds(10, work=0.5) == 1


def test_late_answers_of_busy_replicas_add_one_step_and_silence_adds_none() -> None:
    line = warm(2, latency_objective=1.0)
    line.seconds(70, work=3.0)
    assert line.current == 2
    assert line.seconds(1, work=3.0, latency=1.5, answers=30.0) == 3
    assert Rule.SLOW in line.rules
    assert line.seconds(5, work=3.0, latency=1.5, answers=30.0) == 3
    assert line.seconds(20, work=None) == 3


def resting() -> Timeline:
    """Return four replicas of a rejected version that were busy for a minute: all are to be removed at once."""
    line = warm()
    assert line.seconds(70, work=8.0) == 4
    line.wish(scale_to_zero_after=1.0)
    line.follows = False
    assert line.seconds(2) == 0
    return line


@pytest.mark.parametrize("ready", [4, 3, 1])
@pytest.mark.parametrize("asked", [4, 0])
def test_replicas_that_go_and_do_not_answer_any_more_do_not_come_back(asked: int, ready: int) -> None:
    line = resting()
    line.replicas(asked, ready)
    assert [line.seconds(1, work=None) for _ in range(5)] == [0] * 5
    assert line.seconds(1, work=0.0, complete=False) == 0
    assert line.seconds(1) == 0
    assert line.rules[-1] is Rule.IDLE


def test_work_that_comes_before_they_are_gone_keeps_them() -> None:
    def heard_of_work(line: Timeline) -> int:
        return line.seconds(1, work=1.0, complete=False)

    def waits(line: Timeline) -> int:
        line.activator.holds(queued=1)
        return line.seconds(1, work=None)

    def found_busy(line: Timeline) -> int:
        line.fleet.touch(KEY, line.clock.monotonic())
        return line.seconds(1, work=None)

    assert [keeps(resting()) for keeps in (heard_of_work, waits, found_busy)] == [4, 4, 4]
